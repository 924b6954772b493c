"""A run's settings as TOML."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import tomli_w

from ..toml_file import read_toml

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
