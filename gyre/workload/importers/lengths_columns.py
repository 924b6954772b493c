"""The columns of a table of rollout lengths, under the names that people give them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

COLUMNS: Final = ("group", "execution", "tokens", "duration_s", "reward")
_ALIASES: Final = {
    "duration": "duration_s",
    "group_id": "group",
    "execution_id": "execution",
    "output_tokens": "tokens",
}
NEEDS: Final = "a lengths file needs the columns `group` and `tokens` or `duration_s`"


def canonical(name: str) -> str:
    """The name in `COLUMNS` that a column's name stands for, whatever its case; other names in lower case."""
    lowered = name.strip().lower()
    return _ALIASES.get(lowered, lowered)


def is_known(name: str) -> bool:
    """Whether a column's name stands for one of `COLUMNS`."""
    return canonical(name) in COLUMNS


def is_lengths(names: Iterable[str]) -> bool:
    """Whether columns of these names are enough."""
    found = {canonical(name) for name in names}
    return "group" in found and not found.isdisjoint({"tokens", "duration_s"})


def named_twice(names: Iterable[str]) -> tuple[str, str] | None:
    """The first two names that stand for the same known column, None if all differ."""
    seen: dict[str, str] = {}
    for name in names:
        if not is_known(name):
            continue
        other = seen.setdefault(canonical(name), name)
        if other is not name:
            return other, name
    return None
