"""The JSON schema that a reply's text is asked to follow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .fields import Fields


def json_schema(format_: Fields | None) -> Mapping[str, Any] | None:
    """Return the schema that a format of text asks for, or None; the three protocols nearly agree on its form."""
    if format_ is None:
        return None
    match format_.text("type", "text"):
        case "json_schema":
            named = format_.object("json_schema") or format_
            return named.mapping("schema") or {}
        case "json_object":
            return {"type": "object"}
        case _:
            return None
