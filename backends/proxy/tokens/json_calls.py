"""Calls that a grammar makes the model write as one JSON array, where its own format has no grammar."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from ..conversation import Tool
from .template import full_name

_KEYS: Final = ("$defs", "definitions")


class JsonCalls:
    """`[{"name": …, "parameters": …}, …]`, which is the whole of the text."""

    start = ""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names

    def begins(self, text: str) -> bool:
        return True

    def calls(self, text: str) -> list[tuple[str, str]]:
        try:
            found = json.loads(text.strip(), strict=False)
        except (ValueError, RecursionError):
            return []
        made = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
        return [
            (one["name"], json.dumps(one.get("parameters", {}), ensure_ascii=False))
            for one in made
            if isinstance(one.get("name"), str) and one["name"] in self._names
        ]

    def before(self, text: str) -> str:
        return ""


def calls_schema(tools: Sequence[Tool], *, parallel: bool) -> dict[str, Any]:
    """Return the JSON schema of an array of one or more calls of these tools; of one without `parallel`.

    What a tool's schema defines moves to the root, where its references look for it; of two definitions of one name
    the first stands.
    """
    shared: dict[str, dict[str, Any]] = {}
    calls = []
    for tool in tools:
        parameters = dict(tool.parameters)
        for key in _KEYS:
            if isinstance(defined := parameters.pop(key, None), dict):
                shared[key] = {**defined, **shared.get(key, {})}
        calls.append(
            {
                "type": "object",
                "properties": {"name": {"type": "string", "enum": [full_name(tool)]}, "parameters": parameters},
                "required": ["name", "parameters"],
                "additionalProperties": False,
            }
        )
    most = {} if parallel else {"maxItems": 1}
    return {"type": "array", "minItems": 1, **most, "items": {"anyOf": calls}, **shared}
