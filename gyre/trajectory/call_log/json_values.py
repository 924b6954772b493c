"""Fields of records from JSON's values, for `jsonl`. Each function raises ValueError that says what is expected."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any, Final, TypeVar

import numpy as np

from ...arrays import Float32Array, Int32Array
from ...role import Role
from ..call import Finish, Media, Placement
from ..record_fields import is_number, is_whole, shown

_INT32: Final = np.iinfo(np.int32)
_WORDS: Final[dict[type, str]] = {list: "a list", dict: "an object", type(None): "null"}
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,18}")
_Word = TypeVar("_Word", bound=StrEnum)


def json_words(value: object) -> str:
    """Return a value in JSON's words."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return _WORDS.get(type(value)) or shown(value)


def _expected(value: object, what: str, place: str = "") -> ValueError:
    return ValueError(f"{place}is {json_words(value)}, expected {what}")


def _text(value: Any, place: str = "") -> str:
    if isinstance(value, str):
        return value
    raise _expected(value, "a text", place)


def _name(value: Any) -> str:
    return str(value) if is_whole(value) else _text(value)


def _flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise _expected(value, "true or false")


def _count(value: Any, place: str = "") -> int:
    if is_whole(value):
        return int(value)
    raise _expected(value, "a whole number of 64 bits", place)


def _number(value: Any, place: str = "") -> float:
    if is_number(value):
        return float(value)
    raise _expected(value, "a number", place)


def _finite(value: Any) -> float | None:
    number = _number(value)
    if np.isinf(number):
        raise ValueError(f"is {number}, expected a finite number, or null where there is none")
    return None if np.isnan(number) else number


def _list(value: Any, of: str) -> list[Any]:
    if isinstance(value, list):
        return value
    raise _expected(value, f"a list of {of}")


def _ids(value: Any) -> Int32Array:
    values = _list(value, "whole numbers")
    ids = np.empty(0, np.int64)
    if values and set(map(type, values)) == {int}:
        try:
            ids = np.array(values, np.int64)
        except OverflowError:
            ids = np.empty(0, np.int64)
        else:
            if ids.min() >= _INT32.min and ids.max() <= _INT32.max:
                return ids.astype(np.int32)
    for at, number in enumerate(values):
        if type(number) is not int:
            raise _expected(number, "a whole number", f"value {at} ")
        if not _INT32.min <= number <= _INT32.max:
            raise ValueError(f"value {at} is {shown(number)}, which does not fit 32 bits")
    return ids.astype(np.int32)


def _versions(value: Any) -> Int32Array | int:
    if isinstance(value, list):
        return _ids(value)
    number = int(value) if isinstance(value, str) and _WHOLE.fullmatch(value) else value
    if type(number) is not int or not _INT32.min <= number <= _INT32.max:
        raise _expected(value, "a whole number of 32 bits, or a list of them")
    return number


def _logprobs(value: Any) -> Float32Array:
    numbers = _of_engine(value) if isinstance(value, dict) else _list(value, "numbers")
    if numbers and isinstance(numbers[0], list):
        numbers = [_first(token, at) for at, token in enumerate(numbers)]
    found = [
        number if type(number) is float else np.nan if number is None else _number(number, f"value {at} ")
        for at, number in enumerate(numbers)
    ]
    with np.errstate(over="ignore"):  # infinite then, and the call is refused for it
        return np.array(found, np.float64).astype(np.float32)


def _of_engine(value: dict[str, Any]) -> list[Any]:
    """Return the numbers of OpenAI's forms, as they are given."""
    if value.get("content") is None:
        if "token_logprobs" not in value:
            raise ValueError("has neither content nor token_logprobs, expected one of them, or a list of numbers")
        return _list(value["token_logprobs"], "numbers")
    content = _list(value["content"], 'objects with "logprob"')
    for at, token in enumerate(content):
        if not isinstance(token, dict) or "logprob" not in token:
            raise _expected(token, 'an object with "logprob"', f"value {at} of content ")
    return [token["logprob"] for token in content]


def _first(token: Any, at: int) -> Any:
    if isinstance(token, list) and token:
        return token[0]
    said = "an empty list" if isinstance(token, list) else json_words(token)
    raise ValueError(f"value {at} is {said}, expected [log-probability, token id, text] as in the values before")


def _word(words: type[_Word], value: Any) -> _Word:
    if isinstance(value, str) and value in set(words):
        return words(value)
    raise _expected(value, f"one of {', '.join(words)}")


def _finish(value: Any) -> Finish:
    if isinstance(value, dict):
        if "type" not in value:
            raise ValueError('has no "type", expected a word or {"type": word}')
        value = value["type"]
    return _word(Finish, value)


def _media(value: Any) -> tuple[Media, ...]:
    return tuple(sorted(_media_in(_list(value, "objects")), key=lambda medium: medium.position))


def _media_in(values: list[Any]) -> Iterable[Media]:
    for at, item in enumerate(values):
        if not isinstance(item, dict):
            raise _expected(item, "an object", f"value {at} ")
        for name in ("position", "length", "digest"):
            if name not in item:
                raise ValueError(f"value {at} has no {name}")
        position, length = (_count(item[name], f"{name} of value {at} ") for name in ("position", "length"))
        yield Media(position, length, _text(item["digest"], f"digest of value {at} "))


def _placements(value: Any) -> tuple[Placement, ...]:
    return tuple(_placements_in(_list(value, "objects")))


def _placements_in(values: list[Any]) -> Iterable[Placement]:
    for at, item in enumerate(values):
        if not isinstance(item, dict):
            raise _expected(item, "an object", f"value {at} ")
        for name in ("engine", "at_s"):
            if name not in item:
                raise ValueError(f"value {at} has no {name}")
        at_s = _number(item["at_s"], f"at_s of value {at} ")
        tokens = _count(item.get("tokens", 0), f"tokens of value {at} ")
        yield Placement(_text(item["engine"], f"engine of value {at} "), at_s, tokens)


def _channels(value: Any) -> dict[str, np.ndarray[Any, Any]]:
    if not isinstance(value, dict):
        raise _expected(value, "an object of lists")
    channels = {}
    for name, rows in value.items():
        try:
            channels[name] = np.asarray(rows)
        except (ValueError, TypeError, OverflowError, RecursionError):
            channels[name] = np.empty(0, np.object_)
        if channels[name].dtype.kind not in "biuf":
            what = "numbers of at most 64 bits, in rows of equal length"
            raise ValueError(f"{shown(name)} is {json_words(rows)} of something else, expected {what}")
    return channels


CALL_FIELDS: Final[dict[str, Callable[[Any], Any]]] = {
    **dict.fromkeys(("execution", "call_id", "thread", "parent_thread"), _name),
    **dict.fromkeys(("harness", "model"), _text),
    **dict.fromkeys(("by_policy", "delivered"), _flag),
    **dict.fromkeys(("start_s", "end_s", "queued_s", "first_s"), _number),
    **dict.fromkeys(("sequence", "cached_tokens"), _count),
    "input_ids": _ids,
    "output_ids": _ids,
    "logprobs": _logprobs,
    "versions": _versions,
    "finish": _finish,
    "role": lambda value: _word(Role, value),
    "media": _media,
    "placements": _placements,
    "channels": _channels,
}
EXECUTION_FIELDS: Final[dict[str, Callable[[Any], Any]]] = {
    **dict.fromkeys(("execution", "group"), _name),
    **dict.fromkeys(("harness", "task", "outcome"), _text),
    **dict.fromkeys(("score", "wall_s"), _finite),
}
