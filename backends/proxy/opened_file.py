"""Executions that were opened at the admin address, kept beyond a restart of the proxy."""

from __future__ import annotations

import logging
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from gyre.errors import InputError

from .execution import ExecutionInfo
from .folder_secret import FolderSecret

_log = logging.getLogger(__name__)
_NAME: Final = "keys.opened"


@dataclass(frozen=True, slots=True)
class _Line:
    key: str  # its digest
    info: ExecutionInfo


_LINE: Final = TypeAdapter(_Line)


class OpenedFile:
    """A file with a line of JSON for each such execution: what was said of it, and its key's digest."""

    def __init__(self, folder: Path, secret: FolderSecret, ended: Container[str]) -> None:
        """Read what stands in the folder, without executions that have ended.

        `problems` says afterwards how many lines cannot be read, as one that was torn when the disk was full.

        Raises:
            InputError: the system refuses.
        """
        self._path = folder / _NAME
        self._secret = secret
        latest: dict[str, _Line] = {}
        unread = 0
        try:
            lines = self._path.read_bytes().splitlines() if self._path.exists() else []
        except OSError as error:
            raise InputError(f"{self._path}: cannot be read ({error.strerror}); mend that, or remove it") from error
        for raw in filter(None, lines):
            try:
                line = _LINE.validate_json(raw)
            except ValidationError:
                unread += 1
            else:
                latest[line.info.id] = line
        self._by_key = {line.key: line.info for line in latest.values() if line.info.id not in ended}
        self.problems = (f"{self._path}: {unread} lines cannot be read; open those executions again",) if unread else ()

    def remember(self, info: ExecutionInfo, key: str) -> None:
        """Keep an execution that has been opened; it is open whether that can be written or not."""
        line = _LINE.dump_json(_Line(self._secret.digest("opened", key), info))
        try:
            with self._path.open("ab") as file:
                file.write(b"\n" + line + b"\n")  # first a break: a line before it may have been torn off
        except OSError as error:
            _log.warning("%s: cannot be written (%s); %s has to be opened again", self._path, error.strerror, info.id)

    def find(self, key: str) -> ExecutionInfo | None:
        """Return the execution that an earlier proxy opened with a key, and whose end is not in the log."""
        return self._by_key.get(self._secret.digest("opened", key))
