"""A request's body: bytes to JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

import orjson

from ..wire import BadRequestError


def read_json(body: bytes) -> Mapping[str, Any]:
    """Return the object that `body` holds.

    Half a surrogate pair, which harnesses send when they cut a text in the middle of a character, becomes U+FFFD:
    no tokenizer takes it.

    Raises:
        BadRequestError: no JSON, or no object.
    """
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        value = _patiently(body)
    if not isinstance(value, dict):
        raise BadRequestError("the body must be a JSON object")
    return value


def _patiently(body: bytes) -> Any:
    try:
        text = json.dumps(json.loads(body, parse_constant=_refuse), ensure_ascii=False)
        return orjson.loads(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
    except (ValueError, RecursionError) as error:
        raise BadRequestError(f"the body is not JSON: {str(error)[:200]}") from error


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
