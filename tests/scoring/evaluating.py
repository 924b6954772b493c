"""What tests of evaluators share: subjects, settings, and whether processes are gone."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from gyre.scoring.evaluation import Evaluation, Subject
from gyre.scoring.isolated import run_isolated
from gyre.scoring.isolated_run import Run
from gyre.scoring.limits import Limits
from gyre.scoring.making import make_evaluator
from gyre.scoring.settings import EvaluatorSettings, evaluator_settings

PATIENCE_S = 20.0  # for what must happen soon, on a machine that may be busy


def left(folder: Path, **files: str) -> Path:
    """Make a folder that an execution left; `a__py` is a.py."""
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return folder


def subject_of(folder: Path | None, **more: Any) -> Subject:
    return Subject(**{"execution": "e", "folder": folder, **more})


def settings_of(kind: str, **values: Any) -> EvaluatorSettings:
    return evaluator_settings({"kind": kind, **values})


def evaluated(settings: EvaluatorSettings, subject: Subject) -> Evaluation:
    return asyncio.run(make_evaluator(settings).evaluate(subject))


def isolated(argv: Sequence[str], folder: Path, stdin: Path | None = None, **limits: Any) -> Run:
    scratch = folder / "scratch"
    scratch.mkdir(exist_ok=True)
    return asyncio.run(
        run_isolated(argv, folder=folder, scratch=scratch, limits=Limits(**limits), stdin=stdin),
    )


def is_alive(process: int) -> bool:
    """Whether a process runs; one that has ended and is not reaped does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(done: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < until, "it does not happen"
        time.sleep(0.01)


def written(file: Path) -> list[int]:
    """Process ids that a script has written to `file`, once there are any."""
    wait_until(lambda: file.exists() and file.read_text().endswith("\n"))
    return [int(word) for word in file.read_text().split()]


def wait_until_gone(processes: Sequence[int]) -> None:
    wait_until(lambda: not any(map(is_alive, processes)))


def open_files() -> set[str]:
    """What this process has open, by where it leads; numbers of pipes and sockets are their own."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            found.add(f"{name} {os.readlink(f'/proc/self/fd/{name}')}")
        except OSError:
            continue
    return {entry for entry in found if "/proc/" not in entry}


def children() -> list[int]:
    """Children of this process, those that are not reaped too."""
    found: list[int] = []
    for thread in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # it has ended meanwhile
            found += map(int, (thread / "children").read_text().split())
    return found
