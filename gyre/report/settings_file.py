"""A run's settings as TOML."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

import tomli_w

from ..toml_file import MOST_SHOWN, read_toml

SETTINGS: Final = "settings.toml"


def _plain(value: Any) -> Any:
    """Return `value` without what TOML cannot say: absent values are left out, tuples become lists."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value if item is not None]
    return value


def settings_toml(settings: Mapping[str, Any]) -> str:
    """Return settings as TOML; keys whose value is None are left out."""
    return tomli_w.dumps(_plain(settings))


def as_read(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as they are after writing and reading."""
    return tomllib.loads(settings_toml(settings))


def read_settings(path: Path) -> dict[str, Any]:
    """Return the settings in a results folder.

    Raises:
        InputError: it has no readable `settings.toml`.
    """
    return read_toml(path / SETTINGS, remedy="give a results folder of gyre")


def first_difference(
    there: Mapping[str, Any], here: Mapping[str, Any], free: Collection[str] = (), within: str = ""
) -> str:
    """Return the first key whose value differs, dotted, with both values; "" where there is none.

    Keys in `free`, dotted, may differ, with all that is in them.
    """
    for name in dict.fromkeys((*there, *here)):
        one, other, key = there.get(name), here.get(name), f"{within}{name}"
        if one == other or key in free:
            continue
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            if found := first_difference(one, other, free, f"{key}."):
                return found
            continue
        return f"{key} is {_shown(one)} there and {_shown(other)} here"
    return ""


def _shown(value: Any) -> str:
    return "not set" if value is None else repr(value)[:MOST_SHOWN]
