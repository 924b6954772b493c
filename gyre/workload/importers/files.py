"""Opens the files that importers read, and says clearly what is wrong with one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...errors import InputError
from ..findings import Report
from .log import ImportLog

HEAD_LINES = 20  # lines that a detector looks at


def loads(text: bytes) -> Any:
    """The value of a JSON text.

    Raises:
        ValueError: it is not JSON, or nested more deeply than Python's reader can follow.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def read_json(path: Path) -> Any:
    """The JSON document in a file.

    Raises:
        InputError: the file cannot be read or is not JSON.
    """
    try:
        return loads(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); check the path") from error
    except ValueError as error:
        raise InputError(f"{path}: not JSON ({error}); export it again") from error


def json_lines(path: Path, log: ImportLog) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line numbers from 1 and the objects of a JSON-lines file; a line that is no JSON object is logged and skipped.

    Raises:
        InputError: the file cannot be read.
    """
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                try:
                    value = loads(line)
                except ValueError:
                    value = None
                if isinstance(value, dict):
                    yield number, value
                else:
                    example = line[:60].decode(errors="replace").strip()
                    log.skip(path.name, "not_json", "the line is no JSON object", row=number, example=example)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); check the path") from error


def head_objects(path: Path) -> list[dict[str, Any]]:
    """The JSON objects among a file's first lines, for detection; empty if it has none."""
    found: list[dict[str, Any]] = []
    try:
        with path.open("rb") as lines:
            for _, line in zip(range(HEAD_LINES), lines, strict=False):
                try:
                    value = loads(line)
                except ValueError:
                    continue
                if isinstance(value, dict):
                    found.append(value)
    except OSError:
        return []
    return found


def json_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file, for detection; empty if it holds none. Files of other formats are not read whole."""
    if path.suffix in (".jsonl", ".csv", ".parquet") or not path.is_file():
        return {}
    try:
        value = loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def files_below(path: Path, suffix: str) -> list[Path]:
    """The file itself, whatever its suffix, or the files with the suffix below a folder, sorted."""
    if path.is_dir():
        return sorted(file for file in path.rglob(f"*{suffix}") if file.is_file())
    return [path]


def nothing_left(path: Path, what: str, report: Report) -> InputError:
    """The error for a source in which no usable record is left; the first finding says why."""
    lines = report.lines()
    reason = f" ({lines[0]})" if lines else ""
    return InputError(f"{path}: holds no {what}{reason}; check the file or name another format with --format")
