"""Which recorded calls can be used, and why the others cannot.

A call that breaks a rule is left out as a whole and reported: a gap is never padded, a value never repaired. The rules:

- The reply must have reached the client; what the harness never saw is no part of its history.
- Token ids are not negative, and the input holds at least one: the first token has no predictor.
- A call of the policy has one log-probability per output token. Each is finite and 0 or less. Zero of either sign is a
  probability of 1, and engines do report it. Anything above is refused, however small: a float32 log-softmax subtracts
  from a logit the logarithm of a sum that holds the largest term itself, so it cannot round to more than 0. What gives
  more (0.03 and above have been seen) took logits and normaliser in different precision, bfloat16 for one, and the
  ratios of all its other tokens are as wrong. -9999 and less count as infinite: OpenAI-compatible servers write -9999
  in place of minus infinity, which JSON lacks.
- Its versions, where there are any, and its channels have one row per output token; a version is -1 (unknown) or more.
- A call of another model (`by_policy` False) is never trained, so its log-probabilities, versions and channels are not
  looked at. An output of no tokens needs none either.
- Media lie within the input, in order, without overlap.
- Texts, numbers and flags are of their types, a sequence fits 64 bits; see `gyre.trajectory.record_fields`.
- Arrays are one-dimensional and contiguous, int32 for ids and versions, float32 for log-probabilities: nothing is
  converted on the way, for that would cost more than building the tree.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from .call import CallRecord
from .record_fields import is_whole, shown, wrong_field
from .tree import Refusal


class Reason(StrEnum):
    """Why a call is refused."""

    NOT_DELIVERED = "not_delivered"
    WRONG_TYPE = "wrong_type"  # of a text, a number or a flag
    NEGATIVE_SEQUENCE = "negative_sequence"
    WRONG_DTYPE = "wrong_dtype"  # or not contiguous, or not of one dimension
    EMPTY_INPUT = "empty_input"
    NEGATIVE_TOKEN = "negative_token"
    BAD_MEDIA = "bad_media"
    MISSING_LOGPROBS = "missing_logprobs"
    LOGPROB_LENGTH = "logprob_length"
    NAN_LOGPROB = "nan_logprob"
    INFINITE_LOGPROB = "infinite_logprob"
    POSITIVE_LOGPROB = "positive_logprob"
    VERSION_LENGTH = "version_length"
    NEGATIVE_VERSION = "negative_version"
    CHANNEL_LENGTH = "channel_length"
    # What a single record does not show:
    DUPLICATE_CALL = "duplicate_call"  # its id or its sequence number stands in an earlier call of the execution
    ABORT_WITHOUT_CONTINUATION = "abort_without_continuation"  # aborted, and no later call goes on from its output
    UNREADABLE = "unreadable"  # damaged in the log, or its input refers to a call that is


UNKNOWN_VERSION: Final = -1
UNKNOWN_SEQUENCE: Final = -1  # of a refused call without a usable one
INFINITE_BELOW: Final = -9999.0  # this and less stands for minus infinity

_INT32: Final = np.dtype(np.int32)
_FLOAT32: Final = np.dtype(np.float32)


def refuse(call: CallRecord, reason: Reason, what: str) -> Refusal:
    """Return the refusal of `call`; `what` names the field, the place, the value and the remedy."""
    call_id = call.call_id if isinstance(call.call_id, str) else shown(call.call_id)
    sequence = call.sequence if is_whole(call.sequence) else UNKNOWN_SEQUENCE
    return Refusal(call_id, sequence, reason, f"call {call_id} of execution {call.execution}: {what}")


def refusal(call: CallRecord, *, scan_ids: bool = True) -> Refusal | None:
    """Return why `call` cannot be used, or None; of several reasons the first that is found.

    Reads each array once (the log-probabilities twice) and copies none. Without `scan_ids` the token ids are not read,
    for a caller that finds negative ones itself on the way.
    """
    found = _of_input(call, scan_ids)
    if found is None and call.by_policy:
        found = _of_output(call)
    return found


def _of_input(call: CallRecord, scan_ids: bool) -> Refusal | None:
    """Judge what every call must have: a delivered reply, and token ids."""
    if not call.delivered:
        return refuse(call, Reason.NOT_DELIVERED, "the client was gone before it had the reply")
    if (wrong := wrong_field(call)) is not None:
        return refuse(call, Reason.WRONG_TYPE, wrong)
    if call.sequence < 0:
        return refuse(call, Reason.NEGATIVE_SEQUENCE, f"sequence is {call.sequence}, expected 0 or more")
    for name, ids in (("input_ids", call.input_ids), ("output_ids", call.output_ids)):
        if (found := _wrong_array(call, name, ids, _INT32)) is not None:
            return found
    if not len(call.input_ids):
        what = "input_ids is empty; the first token of a path has no predictor, so record the prompt too"
        return refuse(call, Reason.EMPTY_INPUT, what)
    if scan_ids:
        for name, ids in (("input_ids", call.input_ids), ("output_ids", call.output_ids)):
            if len(ids) and np.minimum.reduce(ids) < 0:
                at = int(np.argmax(ids < 0))
                what = f"{name}[{at}] is {ids[at]}, expected a token id of 0 or more"
                return refuse(call, Reason.NEGATIVE_TOKEN, what)
    return _of_media(call) if call.media else None


def _wrong_array(call: CallRecord, name: str, values: Any, dtype: np.dtype[Any]) -> Refusal | None:
    if not isinstance(values, np.ndarray):
        what = f"is a {type(values).__name__}"
    elif values.dtype != dtype:
        what = f"is an array of {values.dtype}"
    elif values.ndim != 1:
        what = f"has {values.ndim} dimensions"
    elif not values.flags.c_contiguous:
        what = "is not contiguous"
    else:
        return None
    remedy = f"numpy.ascontiguousarray(values, numpy.{dtype}) makes one"
    return refuse(call, Reason.WRONG_DTYPE, f"{name} {what}, expected a contiguous array of {dtype}; {remedy}")


def _of_media(call: CallRecord) -> Refusal | None:
    free = 0  # first position after the medium before
    for index, medium in enumerate(call.media):
        end = medium.position + medium.length
        if medium.position < free or medium.length < 1 or end > len(call.input_ids):
            what = (
                f"media[{index}] is at [{medium.position}, {end}), expected one placeholder or more within "
                f"[{free}, {len(call.input_ids)})"
            )
            return refuse(call, Reason.BAD_MEDIA, what)
        if not medium.digest:
            what = f"media[{index}].digest is empty; equal placeholders of different content would be merged"
            return refuse(call, Reason.BAD_MEDIA, what)
        free = end
    return None


def _of_output(call: CallRecord) -> Refusal | None:
    """Judge what comes with each output token of a call of the policy."""
    tokens = len(call.output_ids)
    if call.logprobs is None:
        if tokens:
            what = f"logprobs is missing for {tokens} output tokens; ask the engine for them, never pad"
            return refuse(call, Reason.MISSING_LOGPROBS, what)
    elif (found := _of_logprobs(call, call.logprobs)) is not None:
        return found
    if call.versions is not None and (found := _of_versions(call, call.versions)) is not None:
        return found
    for name, rows in call.channels.items():
        if not isinstance(rows, np.ndarray) or rows.dtype.hasobject:
            what = f"channels[{name!r}] is no array of numbers"
            return refuse(call, Reason.WRONG_DTYPE, what)
        if rows.ndim == 0 or len(rows) != tokens:
            what = f"channels[{name!r}] has {len(rows) if rows.ndim else 'no'} rows for {tokens} output tokens"
            return refuse(call, Reason.CHANNEL_LENGTH, what)
    return None


def _of_logprobs(call: CallRecord, logprobs: npt.NDArray[Any]) -> Refusal | None:
    if (found := _wrong_array(call, "logprobs", logprobs, _FLOAT32)) is not None:
        return found
    if len(logprobs) != len(call.output_ids):
        what = f"logprobs has {len(logprobs)} values for {len(call.output_ids)} output tokens"
        return refuse(call, Reason.LOGPROB_LENGTH, what)
    if not len(logprobs):
        return None
    low, high = np.minimum.reduce(logprobs), np.maximum.reduce(logprobs)
    if low > INFINITE_BELOW and high <= 0:  # false where a value is NaN: both reductions pass it on
        return None
    at = int(np.argmax(~((logprobs > INFINITE_BELOW) & (logprobs <= 0))))
    value = float(logprobs[at])
    if math.isnan(value):
        reason = Reason.NAN_LOGPROB
    else:
        reason = Reason.POSITIVE_LOGPROB if 0 < value < math.inf else Reason.INFINITE_LOGPROB
    return refuse(call, reason, f"logprobs[{at}] is {value:g}, expected a natural logarithm of 0 or less")


def _of_versions(call: CallRecord, versions: npt.NDArray[Any]) -> Refusal | None:
    if (found := _wrong_array(call, "versions", versions, _INT32)) is not None:
        return found
    if len(versions) != len(call.output_ids):
        what = f"versions has {len(versions)} values for {len(call.output_ids)} output tokens"
        return refuse(call, Reason.VERSION_LENGTH, what)
    if len(versions) and np.minimum.reduce(versions) < UNKNOWN_VERSION:
        at = int(np.argmax(versions < UNKNOWN_VERSION))
        return refuse(call, Reason.NEGATIVE_VERSION, f"versions[{at}] is {versions[at]}, expected -1 (unknown) or more")
    return None
