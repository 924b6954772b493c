"""Checks, each in a process of its own: one that crashes or hangs stops no other."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from gyre.atomic import write_text_atomic
from gyre.scoring.leftovers import kill_marked

MARK: Final = "GYRE_GPU_CELL"  # in the environment of whatever a check starts
_UNFINISHED: Final = "it did not get to its end"
_TAIL_LINES: Final = 8


class Verdict(StrEnum):
    """What became of a check."""

    OK = "ok"
    FAILED = "failed"
    UNRUN = "could not run"


class CannotRunError(Exception):
    """A check cannot run on this machine; the message says why."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a check found. `figures` are those that it came to, also where it failed."""

    check: str
    verdict: Verdict
    reason: str = ""
    seconds: float = 0.0
    figures: Mapping[str, Any] = field(default_factory=dict)
    killed: bool = False  # for it took too long

    def to_json(self) -> str:
        """One object."""
        return json.dumps(asdict(self))


class Sheet:
    """What a check writes its figures on. Each is on disk at once, so a crash or a time limit takes none away."""

    def __init__(self, path: Path, check: str) -> None:
        """Begin a sheet that says that the check has not ended."""
        self._path: Final = path
        self._check: Final = check
        self.figures: Final[dict[str, Any]] = {}
        self.broken: Final[list[str]] = []  # bounds that do not hold
        self.write(Verdict.FAILED, _UNFINISHED)

    def note(self, **figures: Any) -> None:
        """Write figures down; say them, too."""
        self.figures.update(figures)
        print("  ".join(f"{name} {shown(value)}" for name, value in figures.items()), flush=True)
        self.write(Verdict.FAILED, _UNFINISHED)

    def within(self, name: str, value: float, bound: float) -> None:
        """Write a figure down that must not be above `bound`; where it is, the check goes on, and has failed."""
        self.note(**{name: value, f"{name}_bound": bound})
        if not value <= bound:  # so that no number is one that is above
            self.broken.append(f"{name} is {shown(value)}, above {shown(bound)}")

    def holds(self, name: str, fact: bool) -> None:
        """Write down what must be so."""
        self.note(**{name: fact})
        if not fact:
            self.broken.append(f"{name}: no")

    def write(self, verdict: Verdict, reason: str = "") -> None:
        """Write what stands now."""
        write_text_atomic(self._path, Outcome(self._check, verdict, reason, figures=self.figures).to_json())


def report(check: str, work: Callable[[Sheet], object], path: Path) -> None:
    """Do a check's work in this process and leave the outcome at `path`; nothing is raised for the work's failures."""
    sheet = Sheet(path, check)
    try:
        work(sheet)
    except CannotRunError as error:
        sheet.write(Verdict.UNRUN, str(error))
    except ModuleNotFoundError as error:
        own = (error.name or "").startswith("gyre")
        sheet.write(Verdict.FAILED if own else Verdict.UNRUN, f"package {error.name} is not installed")
    except Exception as error:
        traceback.print_exc()
        short = type(error).__name__ == "OutOfMemoryError"  # torch's; it is not imported here
        line = (str(error).splitlines() or [""])[0]
        reason = f"memory of the GPU is short: {line}" if short else f"{type(error).__name__}: {line}"
        sheet.write(Verdict.UNRUN if short else Verdict.FAILED, reason)
    else:
        sheet.write(Verdict.FAILED if sheet.broken else Verdict.OK, "; ".join(sheet.broken))


def run_apart(check: str, command: Sequence[str], path: Path, log: Path, limit_s: float) -> Outcome:
    """Run a command that calls `report`, and return what it left; whatever it started is ended with it.

    Args:
        check: its name.
        command: what to start; it leads a process group of its own.
        path: where it leaves its outcome.
        log: what it prints goes there.
        limit_s: it is killed after so many seconds.
    """
    mark = f"{MARK}={secrets.token_hex(8)}"
    name, _, value = mark.partition("=")
    path.unlink(missing_ok=True)
    begin_s = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env={**os.environ, name: value},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code: int | None = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            kill_marked(mark)  # engines lead groups of their own
    return _outcome(check, path, log, code, limit_s, time.monotonic() - begin_s)


def _outcome(check: str, path: Path, log: Path, code: int | None, limit_s: float, seconds: float) -> Outcome:
    try:
        left = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        left = {"verdict": Verdict.FAILED, "reason": _UNFINISHED, "figures": {}}
    verdict, reason = Verdict(left["verdict"]), left["reason"]
    if code is None:
        verdict, reason = Verdict.FAILED, f"it was killed after its {limit_s:.0f} s"
    elif code:  # also where all was written, and the process could not end well
        why = f"killed by signal {-code}" if code < 0 else f"exit status {code}"
        verdict, reason = Verdict.FAILED, f"{why}; {_tail(log)}"
    return Outcome(check, verdict, reason, round(seconds, 2), left["figures"], killed=code is None)


def _tail(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()[-_TAIL_LINES:]
    return f"its last line: {lines[-1]}" if lines else "it printed nothing"


def shown(value: Any) -> str:
    """A figure for people."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name} {shown(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(shown(one) for one in value) + "]"
    return str(value)


def table(outcomes: Sequence[Outcome]) -> str:
    """All checks, a line each, then what could not run and why."""
    width = max(len(one.check) for one in outcomes)
    lines = [f"{one.check:{width}}  {one.verdict:13}  {one.seconds:7.1f} s  {one.reason}".rstrip() for one in outcomes]
    counts = ", ".join(f"{sum(one.verdict is verdict for one in outcomes)} {verdict}" for verdict in Verdict)
    return "\n".join([*lines, counts])
