"""Runs that are killed again and again, and what must be true of them afterwards.

Run as a program; it is one of its own to fork before libraries have threads. A child is forked for each life of a run,
from a process that has everything loaded. It is killed from outside after a
while, or it kills itself at its n-th write, synchronisation or renaming, before or after it. In some lives the power
fails too: then the journal is cut off somewhere after what had been synchronised.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from io import FileIO
from pathlib import Path
from typing import Any, Final

from ledger import Update, digest, read_ledger
from local_run import Plan, diary_of, local_run, made_up_calls, score_of

from gyre.backends.run.driver import RealCluster
from gyre.backends.run.ports import Restored
from gyre.backends.run.sealed import read_sealed
from gyre.cluster import CellSpec
from gyre.events import ExecutionFinished, ExecutionLost
from gyre.journal import Header
from gyre.report import record_run
from gyre.report.folder import JOURNAL
from gyre.report.journal_file import JournalReader, JournalWriter, whole_length
from gyre.scoring.leftovers import marked
from gyre.trajectory.building import build_tree
from gyre.trajectory.execution import ExecutionRecord

MOST_LIVES: Final = 60
MOST_OPERATIONS: Final = 200
_FAILED: Final = 70  # exit code of a child that raised


@dataclass
class Tally:
    """What befell the runs."""

    runs: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    orphans: int = 0  # harnesses that ran when their driver was killed
    finished_before: int = 0  # executions that had ended before a kill, and did not run again
    cut_bytes: int = 0  # of journals, lost with the power

    @property
    def killed(self) -> int:
        """How often a run was killed."""
        return sum(self.kills.values())


def undisturbed(folder: Path, plan: Plan) -> list[Update]:
    """Make a run without kills, in a child; return its ledger."""
    assert _life(folder, plan, resume=False) == 0
    return read_ledger(folder / "ledger.json")


def killed_run(folder: Path, plan: Plan, draw: random.Random, kills: int, tally: Tally) -> None:
    """Make a run, kill it up to `kills` times, and let it come to its end; check the rules at each kill."""
    tally.runs += 1
    finished: dict[str, int] = {}  # execution to the place in the diary where it was known to have ended
    for life in range(MOST_LIVES):
        how = draw.choice(("after a while", "at an operation", "without power")) if life < kills else "not"
        code = _life(folder, plan, resume=life > 0, how=how, draw=draw)
        if code == 0:
            break
        assert code == -signal.SIGKILL, f"life {life} ended with {code}"
        tally.kills[how] += 1
        tally.orphans += sum(_runs(folder, name) for name in _running(folder))
        if how == "without power":
            tally.cut_bytes += _cut_journal(folder, draw)
        place = len(diary_of(folder))
        for execution in _finished(folder):
            finished.setdefault(execution, place)
    else:
        raise AssertionError("the run does not come to its end")
    tally.finished_before += len(finished)
    check_not_run_again(folder, finished)


def check_not_run_again(folder: Path, finished: dict[str, int]) -> None:
    """No harness ran of an execution that had ended; none went on beside the attempt that took its place."""
    diary = diary_of(folder)
    for place, (word, name) in enumerate(diary):
        execution, _, attempt = name.partition("-")
        assert place < finished.get(execution, len(diary)) or word == "end", f"{name} ran after it had ended"
        later = [other for _, other in diary[:place] if other.partition("-")[0] == execution]
        assert all(int(other.partition("-")[2]) <= int(attempt) for other in later), f"{name} went on"
    assert not _running(folder) or not any(_runs(folder, name) for name in _running(folder))


def check_trained(folder: Path, plan: Plan) -> list[Update]:
    """Every update was made, of groups that no other update has, with all of their samples; return the ledger."""
    ledger = read_ledger(folder / "ledger.json")
    assert len(ledger) == plan.steps
    groups = [group for update in ledger for group, _ in update]
    assert len(set(groups)) == len(groups) == plan.steps * plan.groups_per_step
    for update in ledger:
        for group, name in update:
            assert name == expected_digest(group, plan.group_size), f"group {group} was trained on other samples"
    record = record_run(JournalReader(folder / JOURNAL))
    assert record.complete
    assert record.problems == {}
    return ledger


@cache
def expected_digest(group: int, size: int) -> str:
    """Name the samples of a group as they must be, whatever befell the run."""
    items = []
    for execution in range(group * size, (group + 1) * size):
        record = ExecutionRecord(f"{execution}-0", str(group), score=score_of(execution))
        items.append((record, build_tree(made_up_calls(record.execution))))
    return digest(items)


# One life


def _life(folder: Path, plan: Plan, *, resume: bool, how: str = "not", draw: random.Random | None = None) -> int:
    """Drive a run in a child until it ends or is killed; return the exit code, -9 where it was killed."""
    seed = draw.random() if draw else 0.0
    child = os.fork()
    if child == 0:
        _drive(folder, plan, resume, how, random.Random(seed))
    if how == "after a while" and draw:
        time.sleep(draw.uniform(0.0, 0.9))
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _drive(folder: Path, plan: Plan, resume: bool, how: str, draw: random.Random) -> None:
    """Be the child."""
    try:
        _note_synchronised(folder)
        _check_cursor()
        if how in ("at an operation", "without power"):
            _kill_at(draw.randrange(MOST_OPERATIONS), draw.random() < 0.5)
        with local_run(folder, plan, resume=resume or folder.exists()) as run:
            complete = asyncio.run(run.cluster.run())
        os._exit(0 if complete else _FAILED)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(_FAILED)


def _kill_at(number: int, before: bool) -> None:
    """Let this process kill itself before or after its n-th operation on disk."""
    seen = 0

    def counted(operation: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **more: Any) -> Any:
            nonlocal seen
            seen += 1
            now = seen > number
            if now and before:
                os.kill(os.getpid(), signal.SIGKILL)
            result = operation(*arguments, **more)
            if now:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return run

    for name in ("fsync", "replace", "rename", "pwrite", "mkdir", "unlink"):
        setattr(os, name, counted(getattr(os, name)))
    JournalWriter.flush = counted(JournalWriter.flush)  # type: ignore[method-assign]


def _check_cursor() -> None:
    """Hold, after each resumption, that the data cursor has passed no group that the trainer has not trained."""
    resume = RealCluster._resume

    def checked(self: RealCluster, restored: Restored, specs: tuple[CellSpec, ...]) -> None:
        resume(self, restored, specs)
        trained = {group for update in self._ports.training.updates for group, _ in update}  # type: ignore[attr-defined]
        passed = [group for group in range(self._controller.pool.dispatched_groups) if group in self._controller.cursor]
        assert trained.issuperset(passed), f"the cursor passed {passed}, trained are {trained}"

    RealCluster._resume = checked  # type: ignore[method-assign]


def _note_synchronised(folder: Path) -> None:
    """Write down, where the power cannot take it, how much of the journal was synchronised."""
    synchronise = JournalWriter.sync

    def sync(self: JournalWriter) -> None:
        size = self.path.stat().st_size
        synchronise(self)
        with FileIO(_synchronised(folder), "ab") as file:  # a line is whole, or it is not there
            file.write(f"{size}\n".encode())

    JournalWriter.sync = sync  # type: ignore[method-assign]


def _synchronised(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.synchronised")


def _cut_journal(folder: Path, draw: random.Random) -> int:
    """Cut the journal off somewhere after what was synchronised; return the bytes lost."""
    path = folder / JOURNAL
    if not path.exists():
        return 0
    noted = _synchronised(folder).read_text().splitlines() if _synchronised(folder).exists() else []
    kept, size = int(noted[-1]) if noted else 0, path.stat().st_size
    length = draw.randint(min(kept, size), size)
    os.truncate(path, length)
    return size - length


# What a killed run left


def _finished(folder: Path) -> set[str]:
    """Executions that are known to have ended: by the journal, or by the record that a driver left."""
    found = {
        str(path.parent.parent.name)
        for path in (folder / "executions").glob("*/*/end.json")
        if read_sealed(path, "execution end", "")
    }
    path = folder / JOURNAL
    if path.exists() and whole_length(path):
        for entry in JournalReader(path):
            if not isinstance(entry, Header) and isinstance(entry, ExecutionFinished | ExecutionLost):
                found.add(str(entry.execution))
    return found


def _running(folder: Path) -> list[str]:
    """Attempts that started and have not said that they ended."""
    diary = diary_of(folder)
    ended = {name for word, name in diary if word == "end"}
    return [name for word, name in diary if word == "start" and name not in ended]


def _runs(folder: Path, name: str) -> bool:
    execution, _, attempt = name.partition("-")
    return bool(marked(f"GYRE_FOLDER={folder.absolute() / 'executions' / execution / attempt}"))


def _runs_of(draw: random.Random, folder: Path, kills: int, tally: Tally) -> None:
    """Make and kill runs until `kills` have been."""
    exact, deep = Plan(nap_s=0.15), Plan(steps=5, phi=0.5, mu=2, every=2, nap_s=0.15)
    wanted = undisturbed(folder / "undisturbed", exact)
    while tally.killed < kills:
        run = folder / f"run{tally.runs}"
        plan = draw.choice((exact, deep))
        killed_run(run, plan, draw, min(4, kills - tally.killed), tally)
        ledger = check_trained(run, plan)
        if plan is exact:  # which groups an update takes does not depend on who is quick
            assert [sorted(update) for update in ledger] == [sorted(update) for update in wanted]


def main() -> None:
    """Kill as often as asked; print the tally as JSON."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    draw, tally = random.Random(given.seed), Tally()
    given.folder.mkdir(parents=True, exist_ok=True)
    with local_run(given.folder / "loaded", Plan(steps=1)) as run:  # compiles, and loads what is loaded late
        asyncio.run(run.cluster.run())
    _runs_of(draw, given.folder, given.kills, tally)
    print(json.dumps({**vars(tally), "killed": tally.killed}))


if __name__ == "__main__":
    main()
