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

A log-probability of null is kept as NaN, so that the call is refused, not the file. A score of NaN is no score. Where
an object has a key twice, the last counts. A byte order mark at the file's start is passed over.
"""

from __future__ import annotations

import re
import stat
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
from pydantic_core import from_json

from ...errors import InputError
from ..call import CallRecord
from ..execution import ExecutionRecord
from .json_values import CALL_FIELDS, EXECUTION_FIELDS, json_words

LINE_BYTES: Final = 256 << 20  # a call of 20 million tokens
_ALIASES: Final = {
    "prompt_token_ids": "input_ids",
    "token_ids": "output_ids",
    "output_token_ids": "output_ids",
    "output_token_logprobs": "logprobs",
    "finish_reason": "finish",
    "weight_version": "versions",
}
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_OTHER_FILES: Final = {  # by their first bytes
    b"\x1f\x8b": "gzip: unpack it first",
    b"\x28\xb5\x2f\xfd": "Zstandard: unpack it first",
    b"\xfd7zXZ": "xz: unpack it first",
    b"BZh": "bzip2: unpack it first",
    b"PK\x03\x04": "zip: unpack it first",
    b"PAR1": "Parquet",
    b"\x89PNG": "a PNG image",
}
_PARSERS_PLACE: Final = re.compile(r" at line 1 column (\d+)$")  # the parser sees one line


def read_calls_jsonl(path: Path | str) -> Iterator[CallRecord | ExecutionRecord]:
    """Yield the records of a file in the order of its lines; empty lines are passed over.

    Whether a call can be used is not judged here: see `gyre.trajectory.check.refusal`.

    Raises:
        InputError: the file cannot be read, or a line is no such record, or longer than 256 MB; the message names the
            line and the field.
    """
    path = Path(path)
    counts: Counter[str] = Counter()
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe would be emptied by whoever looks what it holds
            raise InputError(f"{path}: not a regular file; write the JSON lines to one first")
        with path.open("rb") as file:
            _refuse_other(path, file)
            for number, line in enumerate(iter(lambda: file.readline(LINE_BYTES + 1), b""), start=1):
                if len(line) > LINE_BYTES:
                    raise InputError(f"{path}: line {number}: longer than {LINE_BYTES >> 20} MB; give one call a line")
                if line.strip():
                    try:
                        yield _record(line, counts)
                    except ValueError as error:
                        raise InputError(f"{path}: line {number}: {error}") from error
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise InputError(f"{path}: cannot be read ({why}); give a file of JSON lines") from error


def _refuse_other(path: Path, file: BinaryIO) -> None:
    """Leave `file` where its first line begins, or say what it is instead of JSON lines."""
    begins = file.read(8)
    for magic, what in _OTHER_FILES.items():
        if begins.startswith(magic):
            raise InputError(f"{path}: not JSON lines ({what})")
    file.seek(len(_BYTE_ORDER_MARK) if begins.startswith(_BYTE_ORDER_MARK) else 0)


def _record(line: bytes, counts: Counter[str]) -> CallRecord | ExecutionRecord:
    values = _values(line)
    if "group" in values:
        return ExecutionRecord(**_converted(values, EXECUTION_FIELDS, ("execution", "group")))
    call = _converted(values, CALL_FIELDS, ("execution", "input_ids", "output_ids"))
    execution = call["execution"]
    call.setdefault("sequence", counts[execution])
    counts[execution] += 1
    call.setdefault("call_id", str(call["sequence"]))
    if isinstance(call.get("versions"), int):
        call["versions"] = np.full(len(call["output_ids"]), call["versions"], np.int32)
    return CallRecord(**call)


def _values(line: bytes) -> dict[str, Any]:
    """Return a line's fields by the names of the records.

    Raises:
        ValueError: it is no JSON object, or has a field by two names.
    """
    try:
        raw = from_json(line.rstrip())
    except ValueError as error:
        said = _PARSERS_PLACE.sub(r" at byte \1", str(error))
        raise ValueError(f"not JSON ({said})") from error
    if not isinstance(raw, dict):
        raise ValueError(f"is {json_words(raw)}, expected an object")
    values: dict[str, Any] = {}
    given: dict[str, Any] = raw
    for key, value in given.items():
        name: str = _ALIASES.get(key, key)
        if name in values:
            raise ValueError(f"field {name} is given twice, the second time as {key}; keep one of them")
        values[name] = value
    return values


def _converted(
    values: dict[str, Any], known: dict[str, Callable[[Any], Any]], needed: tuple[str, ...]
) -> dict[str, Any]:
    """Return the fields that are not null, each as its dataclass wants it.

    Raises:
        ValueError: a field is unknown, missing, or cannot be what it is.
    """
    if unknown := values.keys() - known.keys():
        raise ValueError(f"unknown field {json_words(min(unknown))}; known are {', '.join(known)}")
    missing = ", ".join(name for name in needed if values.get(name) is None)
    if missing:
        raise ValueError(f"field {missing} is missing")
    converted = {}
    for name, value in values.items():
        if value is not None:
            try:
                converted[name] = known[name](value)
            except ValueError as error:
                raise ValueError(f"field {name}: {error}") from error
    return converted
