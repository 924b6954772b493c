"""A call's arguments: text in gyre and in OpenAI's protocols, an object in Anthropic's."""

from __future__ import annotations

import json
from typing import Any, Final, NoReturn

import orjson

from .fields import Fields
from .sse import Raw, dump

# Key of an object that stands for arguments which are no JSON object, where the protocol has only room for one.
MALFORMED: Final = "malformed_arguments"


def json_text(fields: Fields, key: str) -> str:
    """Return arguments as JSON text: a string as it came, an object written out.

    Raises:
        BadRequestError: neither, or an object that is nested too deep.
    """
    value = fields.get(key)
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if not isinstance(value, dict):
        raise fields.wrong(key, "a string of JSON")
    if set(value) == {MALFORMED} and isinstance(value[MALFORMED], str):
        return str(value[MALFORMED])
    try:
        return dump(value).decode()
    except (RecursionError, TypeError, ValueError) as error:
        raise fields.wrong(key, "less deeply nested") from error


def object_text(arguments: str) -> str:
    """Return a JSON object as text: `arguments` as they are if they are one.

    Line ends that a model wrote into a string as they are get escaped. What is still no object is held by one, and
    `json_text` takes it out again when it comes back.
    """
    if not arguments.strip():
        return ""
    try:
        if isinstance(orjson.loads(arguments), dict):
            return arguments
    except orjson.JSONDecodeError:
        pass
    return _mended(arguments) or dump({MALFORMED: arguments}).decode()


def _mended(arguments: str) -> str:
    try:
        value = json.loads(arguments, strict=False, parse_constant=_refuse)
        return orjson.dumps(value).decode() if isinstance(value, dict) else ""
    except (ValueError, TypeError, RecursionError):
        return ""


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def object_of(arguments: str) -> Any:
    """Return what `dump` writes as the object of `object_text`, byte for byte."""
    return Raw(object_text(arguments) or "{}")
