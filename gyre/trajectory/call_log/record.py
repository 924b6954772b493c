"""Records as the header and payload of a frame, and back.

A header leaves out what has its default. A call's payload holds, one after the other: the input's tokens that are not
shared with the base (int32), the output's tokens (int32), its log-probabilities (float32), its versions as runs (int32
values, then int32 lengths) and its channels. Nothing is judged: a call that cannot be used is kept as it came, for
`gyre.trajectory.check` to explain.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from pydantic_core import PydanticSerializationError, to_json

from ...arrays import Float32Array, Int32Array
from ...errors import InputError
from ...role import Role
from ..call import CallRecord, Finish, Media, Placement
from ..execution import ExecutionRecord
from ..record_fields import checked_execution, shown, wrong_field

_SIMPLE: Final = (
    "finish", "thread", "parent_thread", "role", "harness", "model", "by_policy", "delivered", "cached_tokens"
)  # fmt: skip
_TIMES: Final = ("start_s", "end_s", "queued_s", "first_s")
_DEFAULTS: Final = {field.name: field.default for field in fields(CallRecord)}
_CHANNEL_KINDS: Final = "biufc"
_INT32: Final = np.dtype("<i4")
_FLOAT32: Final = np.dtype("<f4")


@dataclass(frozen=True, slots=True)
class Base:
    """An earlier call of the same execution whose input and output together begin with what this input begins with."""

    back: int  # bytes from the base's frame to this one: so that logs can be joined end to end
    crc: int  # of the base's frame, which its own base is a part of: no other history is taken for this one
    tokens: int  # shared


def require_fields(call: CallRecord) -> None:
    """Refuse what the log cannot keep as it is.

    Raises:
        InputError: a field or an array is of another type than the record's, or a channel is no array of numbers.
    """
    if (wrong := wrong_field(call)) is not None:
        raise InputError(f"call {shown(call.call_id)} of execution {shown(call.execution)}: {wrong}")
    _require(call, "input_ids", call.input_ids, _INT32)
    _require(call, "output_ids", call.output_ids, _INT32)
    if call.logprobs is not None:
        _require(call, "logprobs", call.logprobs, _FLOAT32)
    if call.versions is not None:
        _require(call, "versions", call.versions, _INT32)
    for name, rows in call.channels.items():
        if not isinstance(rows, np.ndarray) or rows.dtype.kind not in _CHANNEL_KINDS:
            raise InputError(f"call {call.call_id} of execution {call.execution}: channels[{name!r}] holds no numbers")


def _require(call: CallRecord, name: str, values: Any, dtype: np.dtype[Any]) -> None:
    if isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype == dtype:
        return
    kind = f"{values.dtype} of {values.ndim} dimensions" if isinstance(values, np.ndarray) else type(values).__name__
    raise InputError(
        f"call {call.call_id} of execution {call.execution}: {name} is {kind}, expected {dtype.name} of one dimension; "
        f"numpy.asarray(values, numpy.{dtype.name}) makes it"
    )


def encode_call(call: CallRecord, base: Base | None) -> tuple[bytes, bytes]:
    """Return header and payload of a call that `require_fields` let pass.

    Raises:
        InputError: a text is no Unicode.
    """
    rest = call.input_ids[base.tokens :] if base else call.input_ids
    header: dict[str, Any] = {"execution": call.execution, "call_id": call.call_id, "sequence": int(call.sequence)}
    parts: list[npt.NDArray[Any]] = [rest, call.output_ids]
    if base:
        header["base"] = [base.back, base.crc, base.tokens]
    header |= {"input": len(rest), "output": len(call.output_ids)}
    if call.logprobs is not None:
        parts.append(call.logprobs)
        header["logprobs"] = len(call.logprobs)
    if call.versions is not None:
        runs = _runs(call.versions)
        parts.extend(runs)
        header["version_runs"] = len(runs[0])
    header |= {name: value for name in _SIMPLE if (value := getattr(call, name)) != _DEFAULTS[name]}
    header |= {name: float(value) for name in _TIMES if not math.isnan(value := getattr(call, name))}
    if call.media:
        header["media"] = [(medium.position, medium.length, medium.digest) for medium in call.media]
    if call.placements:
        header["placements"] = [(place.engine, float(place.at_s), int(place.tokens)) for place in call.placements]
    if call.channels:
        channels = {name: rows.astype(rows.dtype.newbyteorder("<"), copy=False) for name, rows in call.channels.items()}
        parts.extend(channels.values())
        header["channels"] = [(name, rows.dtype.str, rows.shape) for name, rows in channels.items()]
    return _json(header, call.execution), b"".join(part.tobytes() for part in parts)


def _json(header: dict[str, Any], execution: str) -> bytes:
    try:
        return to_json(header)
    except (PydanticSerializationError, UnicodeError) as error:
        raise InputError(f"execution {execution!r}: cannot be recorded ({error}); give texts and numbers") from error


def _runs(values: Int32Array) -> tuple[Int32Array, Int32Array]:
    """Return the value and the length of each run of equal values."""
    starts = np.flatnonzero(np.concatenate((np.ones(min(len(values), 1), np.bool_), values[1:] != values[:-1])))
    return values[starts], np.diff(starts, append=len(values)).astype(np.int32)


class _Payload:
    """Hands out a payload's arrays in order."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._at = 0

    def take(self, count: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        if count < 0:
            raise ValueError(f"an array of {count} values")
        values = np.frombuffer(self._payload, dtype, count, self._at).copy()  # a buffer's own view cannot be written
        self._at += values.nbytes
        return values

    def end(self) -> None:
        if self._at != len(self._payload):
            raise ValueError(f"the payload has {len(self._payload) - self._at} bytes too many")


def decode_call(header: dict[str, Any], payload: bytes, shared: Int32Array | None) -> CallRecord:
    """Return the call; `shared` holds the tokens that its input shares with its base, None where it has no base.

    Raises:
        ValueError, KeyError, TypeError, OverflowError: header and payload do not fit each other, a field is of a wrong
            type, or they name what this gyre does not know.
    """
    arrays = _Payload(payload)
    rest: Int32Array = arrays.take(header["input"], _INT32)
    output: Int32Array = arrays.take(header["output"], _INT32)
    logprobs: Float32Array | None = arrays.take(header["logprobs"], _FLOAT32) if "logprobs" in header else None
    versions: Int32Array | None = None
    if "version_runs" in header:
        values, lengths = (arrays.take(header["version_runs"], _INT32) for _ in range(2))
        versions = np.repeat(values, lengths)
    channels = {}
    for name, dtype, shape in header.get("channels", ()):
        channels[name] = arrays.take(math.prod(shape), np.dtype(dtype)).reshape(shape)
    arrays.end()
    simple = {name: header[name] for name in (*_SIMPLE, *_TIMES) if name in header}
    simple |= {name: kind(simple[name]) for name, kind in (("finish", Finish), ("role", Role)) if name in simple}
    call = CallRecord(
        execution=header["execution"],
        call_id=header["call_id"],
        sequence=header["sequence"],
        input_ids=rest if shared is None else np.concatenate((shared, rest)),
        output_ids=output,
        logprobs=logprobs,
        versions=versions,
        media=tuple(Media(*medium) for medium in header.get("media", ())),
        placements=tuple(Placement(*placement) for placement in header.get("placements", ())),
        channels=channels,
        **simple,
    )
    if (wrong := wrong_field(call)) is not None:
        raise ValueError(wrong)
    return call


def encode_execution(record: ExecutionRecord) -> bytes:
    """Return the header; there is no payload.

    Raises:
        InputError: a field is of a wrong type, a number is infinite, or a text is no Unicode.
    """
    return _json(asdict(checked_execution(record)), record.execution)


def decode_execution(header: dict[str, Any]) -> ExecutionRecord:
    """Return the execution's record.

    Raises:
        ValueError: a field is missing, unknown, or of a wrong type.
    """
    known = {field.name for field in fields(ExecutionRecord)}
    if unknown := header.keys() - known:
        raise ValueError(f"field {shown(min(unknown))} is unknown")
    for name in ("execution", "group"):
        if name not in header:
            raise ValueError(f"{name} is missing")
    return checked_execution(ExecutionRecord(**header))
