"""The executions that `gyre score` evaluates: folders, and what a file says of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import from_json

from ..errors import InputError
from ..outcome import Outcome
from ..scoring.evaluation import Subject
from ..scoring.partial import Treatment, treatment_of
from ..toml_file import validated

_MOST_BYTES: Final = 2**30


class ExecutionLine(BaseModel):
    """What a line of a file says of an execution."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    execution: str = Field(min_length=1)
    group: str = ""
    task: str = ""
    outcome: Outcome = Outcome.COMPLETED
    version: int = Field(default=0, ge=0)
    tool_calls: int | None = Field(default=None, ge=0)
    steps: int | None = Field(default=None, ge=0)
    answer: str | None = None
    data: dict[str, Any] = {}

    def subject(self, folder: Path | None) -> Subject:
        """Return the execution as evaluators see it."""
        return Subject(folder=folder, **{name: getattr(self, name) for name in ExecutionLine.model_fields})


def subjects_of(folders: Sequence[Path], file: Path | None, *, each: bool) -> list[Subject]:
    """Return the executions to evaluate, in the order of their folders, then those of `file` that left none.

    Raises:
        InputError: there is none, two have one name, `file` cannot be used, or has no line for a folder, or a line for
            an execution that should have a folder and has none.
    """
    by_name = _by_name(_executions(folders) if each else list(folders))
    if file is None or file.suffix != ".jsonl":
        data = _object(file) if file is not None else {}
        subjects = [Subject(execution=name, folder=folder, data=data) for name, folder in by_name.items()]
    else:
        subjects = _by_lines(by_name, file)
    if not subjects:
        raise InputError("no execution to evaluate: give the folders that executions left")
    return subjects


def _executions(folders: Sequence[Path]) -> list[Path]:
    return [path for folder in folders for path in sorted(folder.iterdir()) if path.is_dir() and path.name[0] != "."]


def _by_name(folders: Sequence[Path]) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for folder in folders:
        name = folder.resolve().name
        if name in found:
            raise InputError(f"{folder}: {found[name]} is execution {name} too; give each a name of its own")
        found[name] = folder
    return found


def _by_lines(by_name: dict[str, Path], file: Path) -> list[Subject]:
    lines = _lines(file)
    for name, folder in by_name.items():
        if name not in lines:
            raise InputError(f"{file}: no line for execution {name}; add one, or leave out {folder}")
    for name, (number, line) in lines.items():
        if name not in by_name and line.answer is None and treatment_of(line.outcome) is Treatment.SCORE:
            raise InputError(f"{file}: line {number}: execution {name} has neither folder nor answer; give its folder")
    order = [*by_name, *(name for name in lines if name not in by_name)]
    return [lines[name][1].subject(by_name.get(name)) for name in order]


def _lines(file: Path) -> dict[str, tuple[int, ExecutionLine]]:
    found: dict[str, tuple[int, ExecutionLine]] = {}
    for number, text in enumerate(_text(file).splitlines(), start=1):
        if text.strip():
            where = f"{file}: line {number}"
            line = validated(ExecutionLine, _json(text, where), where)
            if line.execution in found:
                raise InputError(f"{where}: execution {line.execution} is given twice; give each once")
            found[line.execution] = (number, line)
    return found


def _object(file: Path) -> dict[str, Any]:
    values = _json(_text(file), str(file))
    if not isinstance(values, dict):
        raise InputError(f"{file}: not a JSON object; give one, or a file of JSON lines whose name ends in .jsonl")
    return values


def _json(text: str, where: str) -> Any:
    try:
        return from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise InputError(f"{where}: not JSON ({error}); mend it") from error


def _text(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            content = opened.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise InputError(f"{file}: larger than {_MOST_BYTES:,} bytes; score the executions in several commands")
        return content.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "not UTF-8"
        raise InputError(f"{file}: cannot be read ({why}); give JSON, or JSON lines in a .jsonl file") from error
