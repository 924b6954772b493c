"""Executions that any key may open: their names, and whose they are, beyond a restart of the proxy."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from pathlib import Path
from typing import Final

from gyre.atomic import disk_errors, write_atomic
from gyre.errors import InputError

_SALT_BYTES: Final = 32
_SALT_NAME: Final = "keys.salt"
_OWNERS_NAME: Final = "keys.owners"


class OpenKeys:
    """Keys that nobody gave out beforehand. Only digests are kept, under a secret of the folder that lies beside them.

    The log holds an execution's name, and who reads it must not be able to try keys against that; and after a restart
    the one that opened an execution by its name is the one that goes on with it.
    """

    def __init__(self, folder: Path) -> None:
        """Read what stands in the folder, or make a secret there that its owner alone can read.

        Raises:
            InputError: it cannot be read or written.
        """
        self._owners_path = folder / _OWNERS_NAME
        path = folder / _SALT_NAME
        if not path.exists():
            write_atomic(path, _write_salt)
        try:
            self._salt = bytes.fromhex(path.read_text(encoding="ascii").strip())
            text = self._owners_path.read_text(encoding="ascii") if self._owners_path.exists() else ""
        except (OSError, ValueError) as error:
            raise InputError(f"{path}: cannot be read ({error}); remove it, and keys open new executions") from error
        if len(self._salt) != _SALT_BYTES:
            raise InputError(f"{path}: is cut short; remove it, and keys open new executions")
        fields = (line.split(" ") for line in text.splitlines())
        self._owners = {pair[0]: pair[1] for pair in fields if len(pair) == 2 and len(pair[1]) == 2 * _SALT_BYTES}

    def name(self, key: str) -> str:
        """Return the name of the execution that `key` opens where the path names none."""
        return f"key-{self._digest('name', key)[:16]}"

    def owns(self, execution: str, key: str) -> bool:
        """Whether `key` opened the execution of that name, or nobody has: then it is its own from now on.

        Raises:
            InputError: that cannot be written.
        """
        digest = self._digest("owner", key)
        if execution not in self._owners:
            with disk_errors(self._owners_path), self._owners_path.open("a", encoding="ascii") as file:
                file.write(f"\n{execution} {digest}\n")  # first a break: a line before it may have been torn off
            self._owners[execution] = digest
        return hmac.compare_digest(self._owners[execution], digest)

    def _digest(self, what: str, key: str) -> str:
        message = f"{what} {key}".encode("utf-8", "surrogateescape")
        return hmac.new(self._salt, message, hashlib.sha256).hexdigest()


def _write_salt(path: Path) -> None:
    path.chmod(0o600)
    path.write_text(secrets.token_hex(_SALT_BYTES), encoding="ascii")
