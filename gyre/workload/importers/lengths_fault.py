"""Says why a text file that looks like a table of lengths is not one."""

from __future__ import annotations

import codecs
from pathlib import Path
from typing import Final

from .files import head_objects
from .lengths_columns import NEEDS, is_known, is_lengths

HEAD_BYTES: Final = 65_536
TABLE_SUFFIXES: Final = (".csv", ".tsv")
_DELIMITERS: Final = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
_UTF_16: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
MOST_SHOWN: Final = 120  # characters of a header that are quoted
MOST_COLUMNS_SHOWN: Final = 8


def lengths_fault(path: Path) -> str | None:
    """What keeps a file from being read as lengths, and the remedy; None if it does not look like lengths at all.

    A file looks like lengths if it is named as a table, or if its header or first JSON object names one of the columns.
    """
    if not path.is_file():
        return None
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError:
        return None
    table = path.suffix.lower() in TABLE_SUFFIXES
    text = _text(head)
    if text is None:
        encoding = "UTF-16" if head.startswith(_UTF_16) else "not UTF-8"
        known = table or (head.startswith(_UTF_16) and _has_known(head.decode("utf-16", "replace")))
        return f"its text is {encoding}: save it as UTF-8 CSV ({NEEDS})" if known else None
    objects = head_objects(path)[:1]
    if objects:
        return _wrong_columns(list(objects[0])) if any(map(is_known, objects[0])) else None
    return _header_fault(text) if table or _has_known(text) else None


def quoted_columns(names: list[str]) -> str:
    """The names in one short line."""
    shown = ", ".join(repr(name) for name in names[:MOST_COLUMNS_SHOWN])
    more = len(names) - MOST_COLUMNS_SHOWN
    return (shown if len(shown) <= MOST_SHOWN else f"{shown[:MOST_SHOWN]}...") + (
        f" and {more} more" if more > 0 else ""
    )


def _text(head: bytes) -> str | None:
    """The head as text, None if it is not UTF-8; a character cut in two at its end is left out."""
    if b"\0" in head:
        return None
    try:
        return codecs.getincrementaldecoder("utf-8-sig")().decode(head)
    except UnicodeDecodeError:
        return None


def _columns(text: str) -> tuple[list[str], str]:
    """The header's columns and the delimiter that parts them, the commonest one in it."""
    header = (text.splitlines() or [""])[0]
    delimiter = max(_DELIMITERS, key=header.count)
    return [name.strip().strip('"') for name in header.split(delimiter)], delimiter


def _has_known(text: str) -> bool:
    return any(map(is_known, _columns(text.lstrip("\ufeff"))[0]))


def _header_fault(text: str) -> str:
    names, delimiter = _columns(text)
    if is_lengths(names) and delimiter != ",":
        return f"its columns are parted by {_DELIMITERS[delimiter]}: save it with commas ({NEEDS})"
    return _wrong_columns(names)


def _wrong_columns(names: list[str]) -> str:
    if not any(names):
        return f"{NEEDS}, in a header line; it has none"
    return f"{NEEDS}; it holds {quoted_columns(names)}. Another format can be named with --format"
