"""Calls from JSON lines, for those whose calls went through something else than gyre's proxy.

Each line is an object. A line of a call has the fields of `CallRecord`; `execution`, `input_ids` and `output_ids` are
needed. A missing `sequence` is the line's place among the execution's, a missing `call_id` is the sequence number.
A line of an ended execution has the fields of `ExecutionRecord`, of which `execution` and `group` are needed, and comes
anywhere in the file. Names and forms that inference engines use are taken too:

    prompt_token_ids                 for input_ids (vLLM)
    token_ids, output_token_ids      for output_ids (vLLM)
    output_token_logprobs            for logprobs: [[log-probability, token id, text], ...] (SGLang)
    logprobs                         also {"content": [{"logprob": ...}, ...]} (OpenAI, chat)
                                     or {"token_logprobs": [...]} (OpenAI, completions)
    finish_reason                    for finish: a word, or {"type": word} (SGLang)
    weight_version                   for versions
    versions                         also one number for all output tokens

A log-probability of null is kept as NaN, so that the call is refused, not the file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
from pydantic_core import from_json

from ...arrays import Float32Array, Int32Array
from ...errors import InputError
from ...role import Role
from ..call import CallRecord, Finish, Media
from ..execution import ExecutionRecord

_ALIASES: Final = {
    "prompt_token_ids": "input_ids",
    "token_ids": "output_ids",
    "output_token_ids": "output_ids",
    "output_token_logprobs": "logprobs",
    "finish_reason": "finish",
    "weight_version": "versions",
}
_INT32: Final = np.iinfo(np.int32)


def read_calls_jsonl(path: Path) -> Iterator[CallRecord | ExecutionRecord]:
    """Yield the records of a file in the order of its lines; empty lines are passed over.

    Whether a call can be used is not judged here: see `gyre.trajectory.check.refusal`.

    Raises:
        InputError: the file cannot be read, or a line is no such record; the message names the line and the field.
    """
    counts: Counter[str] = Counter()
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    try:
                        yield _record(line, counts)
                    except (ValueError, TypeError) as error:
                        raise InputError(f"{path}: line {number}: {error}") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); give a file of JSON lines") from error


def _record(line: bytes, counts: Counter[str]) -> CallRecord | ExecutionRecord:
    raw = from_json(line)
    if not isinstance(raw, dict):
        raise ValueError(f"is a {type(raw).__name__}, expected an object")
    values: dict[str, Any] = {}
    given: dict[str, Any] = raw
    for key, value in given.items():
        name = _ALIASES.get(key, key)
        if name in values:
            raise ValueError(f"{name} is given twice, the second time as {key}; keep one of them")
        values[name] = value
    if "group" in values:
        return ExecutionRecord(**_converted(values, _EXECUTION_FIELDS, ("execution", "group")))
    call = _converted(values, _CALL_FIELDS, ("execution", "input_ids", "output_ids"))
    execution = call["execution"]
    call.setdefault("sequence", counts[execution])
    counts[execution] += 1
    call.setdefault("call_id", str(call["sequence"]))
    if isinstance(call.get("versions"), int):
        call["versions"] = np.full(len(call["output_ids"]), call["versions"], np.int32)
    return CallRecord(**call)


def _converted(
    values: dict[str, Any], known: dict[str, Callable[[Any], Any]], needed: tuple[str, ...]
) -> dict[str, Any]:
    """Return the fields that are not null, each as its dataclass wants it."""
    unknown = ", ".join(sorted(values.keys() - known.keys()))
    if unknown:
        raise ValueError(f"unknown field {unknown}; known are {', '.join(known)}")
    missing = ", ".join(name for name in needed if values.get(name) is None)
    if missing:
        raise ValueError(f"{missing} is missing")
    converted = {}
    for name, value in values.items():
        if value is not None:
            try:
                converted[name] = known[name](value)
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                raise ValueError(f"{name}: {error}") from error
    return converted


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise TypeError(f"is {value!r}, expected a text")


def _name(value: Any) -> str:
    return str(value) if type(value) is int else _text(value)


def _flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise TypeError(f"is {value!r}, expected true or false")


def _count(value: Any) -> int:
    if type(value) is int and value <= np.iinfo(np.int64).max:
        return value
    raise TypeError(f"is {value!r}, expected a whole number")


def _number(value: Any) -> float:
    if type(value) in (int, float):
        return float(value)
    raise TypeError(f"is {value!r}, expected a number")


def _ids(value: Any) -> Int32Array:
    if not isinstance(value, list):
        raise TypeError(f"is a {type(value).__name__}, expected a list of whole numbers")
    ids = np.asarray(value) if value else np.empty(0, np.int64)
    if ids.dtype.kind != "i" or ids.ndim != 1:
        raise TypeError("expected a list of whole numbers of 32 bits")
    if value and (ids.min() < _INT32.min or ids.max() > _INT32.max):
        at = int(np.argmax((ids < _INT32.min) | (ids > _INT32.max)))
        raise ValueError(f"value {at} is {ids[at]}, which does not fit 32 bits")
    return ids.astype(np.int32)


def _versions(value: Any) -> Int32Array | int:
    if isinstance(value, list):
        return _ids(value)
    return int(_ids([int(value) if isinstance(value, str) else value])[0])


def _logprobs(value: Any) -> Float32Array:
    if isinstance(value, dict):
        content = value.get("content")
        value = value["token_logprobs"] if content is None else [token["logprob"] for token in content]
    if not isinstance(value, list):
        raise TypeError(f"is a {type(value).__name__}, expected a list of numbers")
    if value and isinstance(value[0], list):
        value = [token[0] for token in value]
    numbers = np.asarray([np.nan if number is None else _number(number) for number in value], np.float64)
    return numbers.astype(np.float32)


def _finish(value: Any) -> Finish:
    return Finish(value["type"] if isinstance(value, dict) else value)


def _media(value: Any) -> tuple[Media, ...]:
    media = (Media(_count(item["position"]), _count(item["length"]), _text(item["digest"])) for item in value)
    return tuple(sorted(media, key=lambda medium: medium.position))


def _channels(value: Any) -> dict[str, np.ndarray[Any, Any]]:
    channels = {_text(name): np.asarray(rows) for name, rows in value.items()}
    for name, rows in channels.items():
        if rows.dtype.kind not in "biuf":
            raise TypeError(f"{name!r} is no list of numbers, or its rows are of different lengths")
    return channels


_CALL_FIELDS: Final[dict[str, Callable[[Any], Any]]] = {
    **dict.fromkeys(("execution", "call_id", "thread", "parent_thread"), _name),
    **dict.fromkeys(("harness", "model"), _text),
    **dict.fromkeys(("by_policy", "delivered"), _flag),
    **dict.fromkeys(("start_s", "end_s"), _number),
    "sequence": _count,
    "input_ids": _ids,
    "output_ids": _ids,
    "logprobs": _logprobs,
    "versions": _versions,
    "finish": _finish,
    "role": Role,
    "media": _media,
    "channels": _channels,
}
_EXECUTION_FIELDS: Final[dict[str, Callable[[Any], Any]]] = {
    **dict.fromkeys(("execution", "group"), _name),
    **dict.fromkeys(("harness", "task", "outcome"), _text),
    **dict.fromkeys(("score", "wall_s"), _number),
}
