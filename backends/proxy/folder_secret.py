"""A secret of a folder of records, under which keys are kept there: who reads a digest cannot try keys against it."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from pathlib import Path
from typing import Final

from gyre.atomic import write_atomic
from gyre.errors import InputError

DIGEST_LENGTH: Final = 64  # characters
_BYTES: Final = 32
_NAME: Final = "keys.salt"


class FolderSecret:
    """The secret that lies in a folder; only its owner can read it.

    Raises:
        InputError: it cannot be read or written.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / _NAME
        if not path.exists():
            write_atomic(path, _write)
        remedy = "remove it, and keys open new executions"
        try:
            self._secret = bytes.fromhex(path.read_text(encoding="ascii").strip())
        except (OSError, ValueError) as error:
            raise InputError(f"{path}: cannot be read ({error}); {remedy}") from error
        if len(self._secret) != _BYTES:
            raise InputError(f"{path}: is cut short; {remedy}")

    def digest(self, what: str, key: str) -> str:
        """Return a key's digest in hexadecimal; for other uses it is another."""
        message = f"{what} {key}".encode("utf-8", "surrogateescape")
        return hmac.new(self._secret, message, hashlib.sha256).hexdigest()


def _write(path: Path) -> None:
    path.chmod(0o600)
    path.write_text(secrets.token_hex(_BYTES), encoding="ascii")
