"""Which execution a key belongs to."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Final

_DIGEST_BYTES: Final = 32


class KeyTable:
    """Keys, kept as digests under a secret of this process.

    A key is looked up by its digest, which nobody outside can steer, and then compared in constant time: how long an
    answer takes says nothing of the keys that are known.
    """

    def __init__(self) -> None:
        """Start empty."""
        self._secret = secrets.token_bytes(_DIGEST_BYTES)
        self._owners: dict[bytes, tuple[bytes, str]] = {}

    def add(self, key: str, execution: str) -> None:
        """Let `key` stand for `execution`.

        Raises:
            ValueError: the key is empty, or another execution's.
        """
        if not key:
            raise ValueError("a key must not be empty")
        digest = self._digest(key)
        if self._owners.setdefault(digest, (digest, execution))[1] != execution:
            raise ValueError("another execution has this key")

    def owner(self, key: str) -> str | None:
        """Return the execution that `key` belongs to."""
        digest = self._digest(key)
        known, execution = self._owners.get(digest, (bytes(_DIGEST_BYTES), ""))
        return execution if hmac.compare_digest(known, digest) else None

    def drop(self, execution: str) -> None:
        """Forget the execution's keys."""
        self._owners = {digest: owner for digest, owner in self._owners.items() if owner[1] != execution}

    def _digest(self, key: str) -> bytes:
        raw = key.encode("utf-8", "surrogateescape")
        return hashlib.blake2b(raw, digest_size=_DIGEST_BYTES, key=self._secret).digest()


def new_key() -> str:
    """Return a key that cannot be guessed, of a kind that harnesses take."""
    return f"sk-gyre-{secrets.token_urlsafe(24)}"
