"""Tasks of a run from a file of JSON lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import from_json

from gyre.errors import InputError
from gyre.toml_file import validated

from ..run.tasks import Task

_REMEDY: Final = 'give a line such as {"name": "first", "prompt": "Do this."}'


class TaskLine(BaseModel):
    """One line of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1, description="of the task; no two have one name")
    prompt: str = Field(default="", description="what the harness is asked to do")
    files: Path | None = Field(default=None, description="folder whose content the working folder begins with")
    data: dict[str, Any] = Field(default_factory=dict, description="for the evaluator")


def read_tasks(path: Path) -> list[Task]:
    """Read all tasks; `files` that are relative are to the file's folder.

    Raises:
        InputError: the file cannot be read, holds no task, or a line is none; the message names the line.
    """
    try:
        # Strings in JSON may hold other ends of lines than these, such as U+2028, as they are.
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "no text in UTF-8"
        raise InputError(f"{path}: the tasks cannot be read ({why}); give a file of JSON lines") from error
    tasks: dict[str, Task] = {}
    for number, line in enumerate(lines, start=1):
        if line.strip():
            task = _task(line, f"{path}, line {number}", path.absolute().parent)
            if task.name in tasks:
                raise InputError(f"{path}, line {number}: name {task.name!r} is there twice; give another")
            tasks[task.name] = task
    if not tasks:
        raise InputError(f"{path}: holds no task; {_REMEDY}")
    return list(tasks.values())


def _task(line: str, where: str, folder: Path) -> Task:
    try:
        values = from_json(line)
    except ValueError as error:
        raise InputError(f"{where}: not JSON ({error}); {_REMEDY}") from error
    if not isinstance(values, dict):
        raise InputError(f"{where}: no JSON object; {_REMEDY}")
    said = validated(TaskLine, values, where)
    files = None if said.files is None else folder / said.files
    if files is not None and not files.is_dir():
        raise InputError(f"{where}: files: {files} is no folder; give one, or leave it out")
    for key in ("name", "prompt"):
        if "\0" in getattr(said, key):
            raise InputError(f"{where}: {key}: holds U+0000, which no process can be given; take it out")
    return Task(said.name, said.prompt, files, said.data)
