"""A subject as JSON: what evaluators outside this process are given."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from pydantic_core import to_json

from ..outcome import Outcome
from .evaluation import Subject

_FIELDS: Final = tuple(field.name for field in fields(Subject))


def subject_json(subject: Subject, folder: Path | None) -> bytes:
    """Return a subject as a JSON object with a key for each field; its `folder` is where the evaluator finds it.

    Raises:
        ValueError, TypeError: the task's data hold what JSON has not.
    """
    values = {name: getattr(subject, name) for name in _FIELDS}
    values["folder"] = str(folder) if folder is not None else None
    values["data"] = dict(subject.data)
    return json.dumps(values, allow_nan=False).encode()  # in ASCII, so that any text of a policy can be in it


def known_of(subject: Subject) -> str:
    """Return a name of what an evaluator is told of an execution besides its folder: other words, another name.

    The attempt does not count, and neither does the version: an execution is judged once, by the rules of that time.
    """
    told = {name: getattr(subject, name) for name in _FIELDS if name not in ("folder", "attempt", "version")}
    return hashlib.sha256(to_json(told, inf_nan_mode="constants", fallback=str)).hexdigest()[:16]


def subject_of_json(text: bytes) -> Subject:
    """Return the subject that `subject_json` wrote."""
    values: dict[str, Any] = json.loads(text)
    folder = values["folder"]
    return Subject(
        **{
            **values,
            "folder": Path(folder) if folder is not None else None,
            "outcome": Outcome(values["outcome"]),
        }
    )
