"""From what an evaluator says to an evaluation: checked, bounded, and not valid where it cannot be used."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Final

from pydantic_core import from_json, to_json

from .evaluation import Check, CheckStage, Evaluation

MOST_CHECKS: Final = 256
_REASON_CHARS: Final = 300
_TEXT_CHARS: Final = 500  # of a name, a check's detail, a reference
_DETAIL_BYTES: Final = 4096  # of one of the details, as JSON
_DETAILS_BYTES: Final = 32_768  # of all
_SHOWN_CHARS: Final = 60
_KEYS: Final = ("score", "valid", "reference", "reason", "checks", "details")
_CHECK_KEYS: Final = ("name", "passed", "weight", "stage", "detail")


class UnusableResultError(ValueError):
    """What an evaluator said is no evaluation; the message says why."""


def invalid(reason: str, **more: Any) -> Evaluation:
    """Return an evaluation that is not valid."""
    return Evaluation(valid=False, score=None, reason=one_line(reason, _REASON_CHARS), **more)


def one_line(text: str, most: int) -> str:
    """Return `text` on one line of at most `most` characters."""
    line = " ".join(text.encode("utf-8", "replace").decode().split())  # names of files may have what UTF-8 has not
    return line if len(line) <= most else line[: most - 1] + "…"


def evaluation_of(said: object) -> Evaluation:
    """Return the evaluation that a number, a mapping with the keys of an evaluation, or an evaluation stands for.

    One that cannot be used is not valid, and its reason says why; nothing is raised.
    """
    try:
        if isinstance(said, Evaluation):
            return _checked(said)
        if isinstance(said, Mapping):
            return _checked(_of_mapping(said))
        return _checked(Evaluation(valid=True, score=_number(said, "score")))
    except UnusableResultError as error:
        return invalid(f"unusable result: {error}")


def evaluation_of_json(text: bytes) -> Evaluation:
    """Return the evaluation that a JSON object in UTF-8 stands for, as `evaluation_of` does."""
    if not text.strip():
        return invalid("unusable result: it is empty")
    try:
        said = from_json(text)
    except ValueError as error:
        return invalid(f"unusable result: not JSON ({error})")
    if not isinstance(said, dict):
        return invalid(f"unusable result: {_shown(said)} is no JSON object")
    return evaluation_of(said)


def _of_mapping(said: Mapping[Any, Any]) -> Evaluation:
    _refuse_unknown(said, _KEYS, "")
    valid = said.get("valid", True)
    if not isinstance(valid, bool):
        raise UnusableResultError(f"valid is {_shown(valid)}, expected true or false")
    if valid and "score" not in said:
        raise UnusableResultError("it has no score")
    details = said.get("details", {})
    if not isinstance(details, Mapping):
        details = {"details": details}
    return Evaluation(
        valid=valid,
        score=_number(said["score"], "score") if valid else None,
        reference=_text(said.get("reference", ""), "reference"),
        reason=_text(said.get("reason", ""), "reason"),
        checks=_checks(said.get("checks", ())),
        details=details,
    )


def _checks(said: object) -> tuple[Check, ...]:
    if isinstance(said, Mapping):
        return tuple(Check(_text(name, "a check's name"), _share(value, name)) for name, value in said.items())
    if not isinstance(said, list | tuple):
        raise UnusableResultError(f"checks is {_shown(said)}, expected a list of objects, or an object of shares")
    return tuple(one if isinstance(one, Check) else _check(one) for one in said)


def _check(said: object) -> Check:
    if not isinstance(said, Mapping) or "name" not in said or "passed" not in said:
        raise UnusableResultError(f"a check is {_shown(said)}, expected an object with name and passed")
    _refuse_unknown(said, _CHECK_KEYS, "checks.")
    name = _text(said["name"], "a check's name")
    stage = said.get("stage", CheckStage.OUTCOME)
    if stage not in tuple(CheckStage):
        raise UnusableResultError(f"check {name}: stage is {_shown(stage)}, expected {' or '.join(CheckStage)}")
    weight = _number(said.get("weight", 1.0), f"check {name}: weight")
    return Check(name, _share(said["passed"], name), weight, CheckStage(stage), _text(said.get("detail", ""), "detail"))


def _checked(evaluation: Evaluation) -> Evaluation:
    """Return an evaluation with what its fields promise: a finite score or none, bounded texts, JSON values."""
    score = _number(evaluation.score, "score") if evaluation.valid else None
    if len(evaluation.checks) > MOST_CHECKS:
        raise UnusableResultError(f"{len(evaluation.checks):,} checks, expected at most {MOST_CHECKS}")
    for check in evaluation.checks:
        _share(check.passed, check.name)
    checks = tuple(
        dataclasses.replace(
            check,
            name=one_line(check.name, _TEXT_CHARS),
            passed=float(check.passed),
            detail=one_line(check.detail, _TEXT_CHARS),
        )
        for check in evaluation.checks
    )
    reason = one_line(evaluation.reason, _REASON_CHARS)
    return dataclasses.replace(
        evaluation,
        score=score,
        reference=one_line(evaluation.reference, _TEXT_CHARS),
        reason=reason or ("" if evaluation.valid else "the evaluator gives no reason"),
        checks=checks,
        details=_bounded(evaluation.details),
    )


def _bounded(details: Mapping[str, Any]) -> dict[str, Any]:
    try:
        texts = {str(name): to_json(value, inf_nan_mode="null", fallback=str) for name, value in details.items()}
    except Exception as error:  # objects of an evaluator's own may fail in any way
        return {"lost": one_line(f"details that are not JSON: {error}", _TEXT_CHARS)}
    cut = {name: from_json(text) if len(text) <= _DETAIL_BYTES else _beginning(text) for name, text in texts.items()}
    text = to_json(cut)
    return cut if len(text) <= _DETAILS_BYTES else _beginning(text)


def _beginning(text: bytes) -> dict[str, Any]:
    return {"cut": text[: _DETAIL_BYTES // 2].decode(errors="ignore"), "bytes": len(text)}


def _number(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        converted = getattr(value, "item", None)  # a number of NumPy or of a tensor
        value = converted() if callable(converted) and getattr(value, "size", 0) == 1 else value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UnusableResultError(f"{name} is {_shown(value)}, expected a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise UnusableResultError(f"{name} is {_shown(value)}, expected a finite number")
    return number


def _share(value: object, name: object) -> float:
    share = float(value) if isinstance(value, bool) else _number(value, f"check {name}: passed")
    if not 0.0 <= share <= 1.0:
        raise UnusableResultError(f"check {name}: passed is {_shown(value)}, expected a share from 0 to 1")
    return share


def _text(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise UnusableResultError(f"{name} is {_shown(value)}, expected a text")
    return value


def _refuse_unknown(said: Mapping[Any, Any], known: tuple[str, ...], where: str) -> None:
    unknown = [key for key in said if key not in known]
    if unknown:
        raise UnusableResultError(f"unknown key {where}{_shown(unknown[0])}; known keys: {', '.join(known)}")


def _shown(value: object) -> str:
    try:
        return one_line(repr(value), _SHOWN_CHARS)
    except Exception:  # an object of the evaluator's own, or an integer of too many digits
        return f"a {type(value).__name__}"
