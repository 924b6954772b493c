"""A profile as TOML text."""

from __future__ import annotations

import json
from collections.abc import Mapping

from .profile import Profile


def profile_toml(profile: Profile) -> str:
    """TOML that `parse_profile` reads back as an equal profile. Values that are None are left out."""
    return _table(profile.model_dump(exclude_none=True), ())


def _table(values: Mapping[str, object], path: tuple[str, ...]) -> str:
    """Plain values first, then sub-tables: at most three levels deep, as the profile's own schema is."""
    plain = {key: value for key, value in values.items() if not isinstance(value, Mapping)}
    tables = {key: value for key, value in values.items() if isinstance(value, Mapping)}
    lines = [f"[{'.'.join(path)}]\n"] if path and plain else []
    lines += [f"{key} = {_scalar(value)}\n" for key, value in plain.items()]
    blocks = ["".join(lines)] if lines else []
    return "\n".join(blocks + [_table(value, (*path, key)) for key, value in tables.items()])


def _scalar(value: object) -> str:
    """JSON's strings (kept to ASCII) and numbers are TOML's; a float of repr always has a point or an exponent."""
    return repr(value) if isinstance(value, float) else json.dumps(value)
