"""Executions that any key may open: their names, and whose they are, beyond a restart of the proxy."""

from __future__ import annotations

import hmac
from pathlib import Path
from typing import Final

from gyre.atomic import disk_errors
from gyre.errors import InputError

from .folder_secret import DIGEST_LENGTH, FolderSecret

_OWNERS_NAME: Final = "keys.owners"


class OpenKeys:
    """Keys that nobody gave out beforehand. Only digests are kept, under the folder's secret.

    The log holds an execution's name, and who reads it must not be able to try keys against that; and after a restart
    the one that opened an execution by its name is the one that goes on with it.
    """

    def __init__(self, folder: Path, secret: FolderSecret | None = None) -> None:
        """Read what stands in the folder.

        Raises:
            InputError: it cannot be read or written.
        """
        self._secret = secret or FolderSecret(folder)
        self._path = folder / _OWNERS_NAME
        try:
            text = self._path.read_text(encoding="ascii") if self._path.exists() else ""
        except (OSError, ValueError) as error:
            raise InputError(f"{self._path}: cannot be read ({error}); remove it, and keys are asked anew") from error
        fields = (line.split(" ") for line in text.splitlines())
        self._owners = {pair[0]: pair[1] for pair in fields if len(pair) == 2 and len(pair[1]) == DIGEST_LENGTH}

    def name(self, key: str) -> str:
        """Return the name of the execution that `key` opens where the path names none."""
        return f"key-{self._secret.digest('name', key)[:16]}"

    def owns(self, execution: str, key: str) -> bool:
        """Whether `key` opened the execution of that name, or nobody has: then it is its own from now on.

        Raises:
            InputError: that cannot be written.
        """
        digest = self._secret.digest("owner", key)
        if execution not in self._owners:
            with disk_errors(self._path), self._path.open("a", encoding="ascii") as file:
                file.write(f"\n{execution} {digest}\n")  # first a break: a line before it may have been torn off
            self._owners[execution] = digest
        return hmac.compare_digest(self._owners[execution], digest)
