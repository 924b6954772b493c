"""What the plain fields of records must be: texts, whole numbers, flags. A record with another cannot be kept."""

from __future__ import annotations

import dataclasses
import math
from numbers import Integral, Real
from typing import Any, Final, TypeGuard

import numpy as np

from ..errors import InputError
from ..role import Role
from .call import CallRecord, Finish, Media, Placement
from .execution import ExecutionRecord

_CALL_TEXTS: Final = ("execution", "call_id", "thread", "parent_thread", "harness", "model")
_EXECUTION_TEXTS: Final = ("execution", "group", "harness", "task", "outcome")
_FINISHES: Final = frozenset(Finish)
_ROLES: Final = frozenset(Role)
_LEAST: Final = int(np.iinfo(np.int64).min)
_MOST: Final = int(np.iinfo(np.int64).max)
_SHOWN: Final = 60  # characters


def shown(value: object) -> str:
    """Return `value` as an error names it: short, on one line, whatever it is."""
    if isinstance(value, Integral) and not _LEAST <= int(value) <= _MOST:
        return f"an integer of {int(value).bit_length()} bits"
    if value is None or isinstance(value, bool | int | float | np.generic):
        return repr(value)
    if isinstance(value, str):
        cut = value if len(value) <= _SHOWN else value[: _SHOWN - 1] + "…"
        return ascii(cut) if not cut.isprintable() else repr(cut)
    return f"a {type(value).__name__}"


def is_whole(value: object) -> TypeGuard[int]:
    """Whether `value` is an integer (no truth value) of at most 64 bits."""
    if type(value) is int:  # at once, as a rule
        return _LEAST <= value <= _MOST
    return isinstance(value, Integral) and not isinstance(value, bool) and _LEAST <= int(value) <= _MOST


def is_number(value: object) -> bool:
    """Whether `value` is a real number (no truth value) that a float holds."""
    if type(value) is float:
        return True
    return isinstance(value, Real) and not isinstance(value, bool) and (not isinstance(value, Integral) or _fits(value))


def _fits(value: Integral) -> bool:
    try:
        float(value)
    except OverflowError:
        return False
    return True


def wrong_field(call: CallRecord) -> str | None:
    """Return which field of `call`, its arrays aside, is of a wrong type, and what is expected; None where all fit."""
    for name in _CALL_TEXTS:
        if not isinstance(value := getattr(call, name), str):
            return f"{name} is {shown(value)}, expected a text"
    for name in ("sequence", "cached_tokens"):
        if not is_whole(value := getattr(call, name)):
            return f"{name} is {shown(value)}, expected a whole number of 64 bits"
    for name in ("start_s", "end_s", "queued_s", "first_s"):
        if not is_number(value := getattr(call, name)):
            return f"{name} is {shown(value)}, expected a number of seconds"
    for name in ("by_policy", "delivered"):
        if not isinstance(value := getattr(call, name), bool):
            return f"{name} is {shown(value)}, expected True or False"
    if not isinstance(call.finish, str) or call.finish not in _FINISHES:
        return f"finish is {shown(call.finish)}, expected one of {', '.join(Finish)}"
    if call.role is not None and (not isinstance(call.role, str) or call.role not in _ROLES):
        return f"role is {shown(call.role)}, expected None or one of {', '.join(Role)}"
    for name in call.channels:
        if not isinstance(name, str):
            return f"channels has the name {shown(name)}, expected a text"
    return _wrong_media(call.media) or _wrong_placement(call.placements)


def _wrong_media(media: tuple[Media, ...]) -> str | None:
    for index, medium in enumerate(media):
        if not isinstance(medium, Media):
            return f"media[{index}] is {shown(medium)}, expected a Media"
        for name in ("position", "length"):
            if not is_whole(value := getattr(medium, name)):
                return f"media[{index}].{name} is {shown(value)}, expected a whole number"
        if not isinstance(medium.digest, str):
            return f"media[{index}].digest is {shown(medium.digest)}, expected a text"
    return None


def _wrong_placement(placements: tuple[Placement, ...]) -> str | None:
    for index, placement in enumerate(placements):
        if not isinstance(placement, Placement):
            return f"placements[{index}] is {shown(placement)}, expected a Placement"
        if not isinstance(placement.engine, str):
            return f"placements[{index}].engine is {shown(placement.engine)}, expected a text"
        if not is_number(placement.at_s):
            return f"placements[{index}].at_s is {shown(placement.at_s)}, expected a number of seconds"
        if not is_whole(placement.tokens):
            return f"placements[{index}].tokens is {shown(placement.tokens)}, expected a whole number"
    return None


def checked_execution(record: ExecutionRecord) -> ExecutionRecord:
    """Return `record` with its numbers as floats; NaN, which is no valid score, as None.

    Raises:
        InputError: a field is of a wrong type, or a number is infinite.
    """
    for name in _EXECUTION_TEXTS:
        if not isinstance(value := getattr(record, name), str):
            raise _wrong(record, f"{name} is {shown(value)}, expected a text")
    return dataclasses.replace(record, score=_number(record, "score"), wall_s=_number(record, "wall_s"))


def _number(record: ExecutionRecord, name: str) -> float | None:
    value: Any = getattr(record, name)
    if value is None:
        return None
    if not is_number(value) or math.isinf(value):
        raise _wrong(record, f"{name} is {shown(value)}, expected a finite number, or None where there is none")
    return None if math.isnan(value) else float(value)


def _wrong(record: ExecutionRecord, what: str) -> InputError:
    return InputError(f"execution {shown(record.execution)}: {what}")
