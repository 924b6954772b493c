"""A run's settings as TOML."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
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


def first_difference(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """Return the first key whose value differs, dotted, with both values; "" where there is none."""
    for key in dict.fromkeys((*there, *here)):
        one, other = there.get(key), here.get(key)
        if one == other:
            continue
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            return f"{key}.{first_difference(one, other)}"
        return f"{key} is {_shown(one)} there and {_shown(other)} here"
    return ""


def _shown(value: Any) -> str:
    return "not set" if value is None else repr(value)[:MOST_SHOWN]
