"""The driver: what is written before what is done, and what becomes of each failure."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ledger import read_ledger
from local_run import LocalRun, Plan, local_run

from gyre import commands as cmd
from gyre import events as ev
from gyre.backends.run.clock import RunClock
from gyre.backends.run.driver import RunFailedError, stopped_by_signals
from gyre.backends.run.lanes import CellDesk
from gyre.backends.run.ports import Assignment, Ended, SamplesLostError
from gyre.cluster import CellRole, CellState
from gyre.errors import InputError
from gyre.events import Event
from gyre.group_settings import GroupSettings, OnLoss
from gyre.journal import Entry, Header
from gyre.report import read_run
from gyre.report.folder import JOURNAL
from gyre.report.journal_file import JournalReader
from gyre.scoring.evaluation import Evaluation, Subject
from gyre.scoring.leftovers import marked

QUICK = Plan(steps=2, nap_s=0.0)


def drive(run: LocalRun) -> bool:
    return asyncio.run(run.cluster.run())


def entries(folder: Path) -> list[Entry]:
    return [entry for entry in JournalReader(folder / JOURNAL) if not isinstance(entry, Header)]


def of_kind(folder: Path, kind: Any) -> list[Any]:
    return [entry for entry in entries(folder) if isinstance(entry, kind)]


def replace_method(part: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Put what `make` returns in the place of a method, which it gets."""
    setattr(part, name, make(getattr(part, name)))


def test_a_command_is_written_before_it_is_carried_out(tmp_path: Path) -> None:
    seen: list[str] = []
    with local_run(tmp_path / "run", QUICK) as run:
        for kind, handler in run.cluster._commands.items():

            def checked(command: cmd.Command, handler: Callable[[Any], None] = handler) -> None:
                assert command in entries(tmp_path / "run")
                seen.append(type(command).__name__)
                handler(command)

            run.cluster._commands[kind] = checked
        assert drive(run)
    assert len(seen) == len(of_kind(tmp_path / "run", cmd.Command))


def test_a_score_in_the_journal_has_its_samples(tmp_path: Path) -> None:
    with local_run(tmp_path / "run", QUICK) as run:
        commit = run.cluster._journal.commit

        def checked(event: Event) -> list[cmd.Command]:
            if isinstance(event, ev.ExecutionScored) and event.valid:
                assert f"{event.execution}-0" in run.storage.executions(event.execution // 2)
                assert event.sample_tokens == (17,)  # 4 of the prompt, 3 turns of 3, 2 results of 2
            return commit(event)

        run.cluster._journal.commit = checked  # type: ignore[method-assign]
        assert drive(run)


def test_one_exception_in_a_rollout_does_not_end_the_run(tmp_path: Path) -> None:
    """NovaSky-AI/SkyRL#1613: one exception aborted the whole step."""
    plan = Plan(steps=2, group_size=3, capacity=6, nap_s=0.0)
    with local_run(tmp_path / "run", plan) as run:

        def fails(original: Any) -> Any:
            async def run_one(assignment: Assignment, started: Callable[[], None]) -> Ended:
                if assignment.execution == 1:
                    raise RuntimeError("the host is\ngone")
                ended: Ended = await original(assignment, started)
                return ended

            return run_one

        replace_method(run.cluster._ports.rollouts, "run", fails)
        assert drive(run)
    (lost,) = of_kind(tmp_path / "run", ev.ExecutionLost)
    assert (lost.execution, lost.reason) == (1, "RuntimeError: the host is gone")
    assert len(read_ledger(tmp_path / "run" / "ledger.json")) == 2


class TroubledEvaluator:
    """Hangs, fails or crashes for the first execution, and is well for the others."""

    def __init__(self, how: str) -> None:
        self.how = how

    async def evaluate(self, subject: Subject) -> Evaluation:
        if subject.execution.startswith("0-"):
            if self.how == "hangs":
                await asyncio.sleep(3600)
            if self.how == "crashes":
                raise RuntimeError("no memory")
            return Evaluation(False, None, reason="no verdict")
        return Evaluation(True, float(subject.execution[0]) % 2)


@pytest.mark.parametrize("how", ["hangs", "crashes", "fails"])
def test_a_verifier_that_hangs_does_not_hold_its_group_for_ever(tmp_path: Path, how: str) -> None:
    """fw-ai/cookbook#692: a group stayed at 7 of 8; here it goes on with the others when the budget is over."""
    plan = Plan(steps=1, groups_per_step=1, group_size=3, nap_s=0.0, settings={"score_attempts": 2})
    with local_run(tmp_path / "run", plan) as run:
        scorer = run.cluster._ports.evaluations._scorer  # type: ignore[attr-defined]
        scorer._evaluator, scorer._budget_s = TroubledEvaluator(how), 0.1
        assert drive(run)
    failed = [event for event in of_kind(tmp_path / "run", ev.ExecutionScored) if not event.valid]
    assert [(event.execution, event.attempt) for event in failed] == [(0, 0), (0, 1)]
    assert all(event.reason for event in failed)
    assert len(read_ledger(tmp_path / "run" / "ledger.json")) == 1


def test_a_late_score_still_counts(tmp_path: Path) -> None:
    """ridgesai/ridges#458: the attempt had timed out, and its valid score came later."""
    plan = Plan(
        steps=1, groups_per_step=1, group_size=2, nap_s=0.0, settings={"score_attempts": 3, "score_timeout_s": 0.15}
    )
    with local_run(tmp_path / "run", plan) as run:

        def slow(original: Any) -> Any:
            async def evaluate(assignment: Assignment, ended: Ended, attempt: int, version: int) -> Evaluation:
                if assignment.execution == 0:
                    await asyncio.sleep(0.2 if attempt == 0 else 3600)
                found: Evaluation = await original(assignment, ended, attempt, version)
                return found

            return evaluate

        replace_method(run.cluster._ports.evaluations, "evaluate", slow)
        assert drive(run)
    scored = [event for event in of_kind(tmp_path / "run", ev.ExecutionScored) if event.execution == 0]
    assert [(event.attempt, event.valid) for event in scored] == [(0, True)]
    assert [command.attempt for command in of_kind(tmp_path / "run", cmd.ScoreExecution) if command.execution == 0] == [
        0,
        1,
    ]


def test_a_score_whose_samples_are_gone_does_not_count(tmp_path: Path) -> None:
    plan = Plan(steps=1, groups_per_step=1, group_size=3, nap_s=0.0, settings={"score_attempts": 1})
    with local_run(tmp_path / "run", plan) as run:

        def gone(original: Any) -> Any:
            async def keep(assignment: Assignment, ended: Ended, evaluation: Evaluation) -> tuple[int, ...]:
                if assignment.execution == 2:
                    raise SamplesLostError("of 3 calls that were recorded 1 are left")
                lengths: tuple[int, ...] = await original(assignment, ended, evaluation)
                return lengths

            return keep

        replace_method(run.cluster._ports.samples, "keep", gone)
        assert drive(run)
    (failed,) = [event for event in of_kind(tmp_path / "run", ev.ExecutionScored) if not event.valid]
    assert failed.execution == 2
    assert "1 are left" in failed.reason


@pytest.mark.parametrize(
    "part", ["training.apply", "training.offer", "training.checkpoint", "cells.publish", "samples.keep"]
)
def test_what_a_run_cannot_do_without_ends_it_and_can_be_mended(tmp_path: Path, part: str) -> None:
    port, _, method = part.partition(".")
    with local_run(tmp_path / "run", QUICK) as run:

        def breaks(original: Any) -> Any:
            async def broken(*arguments: Any, **more: Any) -> Any:
                raise OSError("no space")

            return broken

        replace_method(getattr(run.cluster._ports, port), method, breaks)
        with pytest.raises(RunFailedError, match=r"failed \(OSError: no space\); the run can be taken up again"):
            drive(run)
    with local_run(tmp_path / "run", QUICK, resume=True) as run:
        assert drive(run)
    assert len(read_ledger(tmp_path / "run" / "ledger.json")) == QUICK.steps
    assert read_run(tmp_path / "run").record.problems == {}


def test_a_cell_that_cannot_switch_has_failed(tmp_path: Path) -> None:
    with local_run(tmp_path / "run", QUICK) as run:

        def breaks(original: Any) -> Any:
            async def switch(cell: int, role: CellRole, changed: Callable[[CellState], None]) -> None:
                changed(CellState.TO_TRAINING)
                asyncio.get_running_loop().call_later(0.05, run.cluster.stop)
                raise RuntimeError("no memory")

            return switch

        replace_method(run.cluster._ports.cells, "switch", breaks)
        assert drive(run) is False
    assert [event.cell for event in of_kind(tmp_path / "run", ev.CellFailed)] == [0]


def test_a_full_disk_ends_the_run_in_one_line(tmp_path: Path) -> None:
    with local_run(tmp_path / "run", QUICK) as run:
        writer = run.cluster._journal._writer
        flush, count = writer.flush, [0]

        def full() -> None:
            count[0] += 1
            if count[0] > 10:
                writer._lines.clear()
                raise InputError(f"{writer.path}: cannot be written (No space left on device); free space there")
            flush()

        writer.flush = full  # type: ignore[method-assign]
        with pytest.raises(InputError, match="No space left"):
            drive(run)
        writer.flush = flush  # type: ignore[method-assign]
    with local_run(tmp_path / "run", QUICK, resume=True) as run:
        assert drive(run)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_run_and_what_it_started(tmp_path: Path, number: signal.Signals) -> None:
    plan = Plan(nap_s=600.0)

    async def stopped(run: LocalRun) -> bool:
        with stopped_by_signals(run.cluster):
            task = asyncio.create_task(run.cluster.run())
            while not of_kind(tmp_path / "run", ev.ExecutionStarted):
                await asyncio.sleep(0.01)
            os.kill(os.getpid(), number)
            return await task

    with local_run(tmp_path / "run", plan) as run:
        assert asyncio.run(stopped(run)) is False
        assert run.attempts.end_leftovers() == 0
    assert not of_kind(tmp_path / "run", ev.ExecutionLost)
    assert read_run(tmp_path / "run").record.problems == {}


def test_a_cancelled_execution_is_not_heard_of_again(tmp_path: Path) -> None:
    """A group that cannot matter is given up: its rest is cancelled."""
    plan = Plan(
        steps=1,
        groups_per_step=1,
        group_size=2,
        capacity=3,
        settings={"groups": GroupSettings(redundancy=1)},
        command=(
            "/bin/sh",
            "-c",
            'case "$GYRE_EXECUTION" in 2-*) sleep 600;; *) cp "$GYRE_PROMPT_FILE" answer.txt;; esac',
        ),
    )
    with local_run(tmp_path / "run", plan) as run:
        assert drive(run)
    (cancelled,) = of_kind(tmp_path / "run", cmd.CancelExecution)
    assert cancelled.execution == 2
    later = [
        entry for entry in of_kind(tmp_path / "run", (ev.ExecutionFinished, ev.ExecutionLost)) if entry.execution == 2
    ]
    assert later == []


def test_the_clock_goes_on_from_where_it_is_set_and_never_back() -> None:
    now = [100.0]
    clock = RunClock(5.0, lambda: now[0])
    assert clock.now_s == 5.0
    now[0] = 101.5
    assert clock.now_s == 6.5
    now[0] = 90.0
    assert clock.now_s == 6.5


def test_a_lost_member_is_replaced_by_an_execution_of_the_same_task(tmp_path: Path) -> None:
    plan = Plan(
        steps=1,
        groups_per_step=2,
        nap_s=0.0,
        settings={"groups": GroupSettings(on_loss=OnLoss.TOP_UP)},
        command=("/bin/sh", "-c", 'case $GYRE_EXECUTION in 4-*) exit 75;; esac; cp "$GYRE_PROMPT_FILE" answer.txt'),
    )
    with local_run(tmp_path / "run", plan) as run:
        assert drive(run)
    (added,) = of_kind(tmp_path / "run", cmd.AddExecutions)
    (replacement,) = added.executions
    assert added.group == 1
    (score,) = [event for event in of_kind(tmp_path / "run", ev.ExecutionScored) if event.execution == replacement]
    assert score.valid
    assert score.checks == (("answer", 1.0),), "it was given the task of its group, and judged by it"


def test_a_stop_waits_for_a_harness_that_is_being_ended(tmp_path: Path) -> None:
    """It was cancelled a moment before, and has its grace: forgotten, or cancelled again, it would be left behind."""
    plan = Plan(
        steps=1,
        groups_per_step=1,
        group_size=2,
        capacity=3,
        settings={"groups": GroupSettings(redundancy=1)},
        options={"grace_s": 0.5},
        command=(
            "/bin/sh",
            "-c",
            'case "$GYRE_EXECUTION" in 2-*) trap "" TERM; echo > "$DIARY.deaf"; while :; do sleep 0.05; done;; esac; '
            'while [ ! -e "$DIARY.deaf" ]; do sleep 0.01; done; cp "$GYRE_PROMPT_FILE" answer.txt',
        ),
    )
    with local_run(tmp_path / "run", plan) as run:
        commit = run.cluster._journal.commit

        def stops(event: Event) -> list[cmd.Command]:
            commands = commit(event)
            if any(isinstance(command, cmd.CancelExecution) for command in commands):
                run.cluster.stop()
            return commands

        run.cluster._journal.commit = stops  # type: ignore[method-assign]

        async def driven() -> int:
            await run.cluster.run()
            return len(marked(f"GYRE_EXECUTIONS={run.attempts.folder}"))

        assert asyncio.run(driven()) == 0


def test_a_group_is_deleted_when_nothing_writes_there_any_more(tmp_path: Path) -> None:
    """A dropped group's harness may still be in its grace, and would make its folder anew."""
    plan = Plan(
        steps=1,
        groups_per_step=1,
        group_size=2,
        capacity=4,
        settings={"groups": GroupSettings(on_loss=OnLoss.WAIT, max_replacements=1), "score_attempts": 1},
        options={"grace_s": 0.3},
        command=(
            "/bin/sh",
            "-c",
            'case "$GYRE_EXECUTION" in 0-*|2-*) while [ ! -e "$DIARY.deaf" ]; do sleep 0.01; done; exit 75;; '
            '1-*) trap "" TERM; echo > "$DIARY.deaf"; while :; do mkdir -p "$HOME/late"; sleep 0.01; done;; esac; '
            'cp "$GYRE_PROMPT_FILE" answer.txt',
        ),
    )
    with local_run(tmp_path / "run", plan) as run:
        assert drive(run)
    assert [command.group for command in of_kind(tmp_path / "run", cmd.DropGroup)] == [0]
    assert not (tmp_path / "run" / "executions" / "1").exists()


def test_text_that_has_no_utf8_does_not_end_the_run(tmp_path: Path) -> None:
    """JSON of an evaluator may hold half a surrogate pair; the journal cannot."""
    plan = Plan(steps=1, groups_per_step=1, nap_s=0.0)
    with local_run(tmp_path / "run", plan) as run:

        def odd(original: Any) -> Any:
            async def evaluate(assignment: Assignment, ended: Ended, attempt: int, version: int) -> Evaluation:
                found: Evaluation = await original(assignment, ended, attempt, version)
                return replace(found, reference="state \udcff")

            return evaluate

        replace_method(run.cluster._ports.evaluations, "evaluate", odd)
        assert drive(run)
    assert {event.reference for event in of_kind(tmp_path / "run", ev.ExecutionScored)} == {"state ?"}


def test_a_trainer_that_does_not_save_the_last_version_is_at_fault(tmp_path: Path) -> None:
    """The run would else wait for ever for a checkpoint."""
    with local_run(tmp_path / "run", QUICK) as run:

        def forgets(original: Any) -> Any:
            async def checkpoint(version: int, *, last: bool) -> bool:
                return False

            return checkpoint

        replace_method(run.cluster._ports.training, "checkpoint", forgets)
        with pytest.raises(RunFailedError, match="did not make version 2 durable"):
            drive(run)


def test_weights_that_are_commanded_again_are_published_once(tmp_path: Path) -> None:
    reported: list[Event] = []

    class Report:
        now_s = 0.0

        def __call__(self, event: Event) -> None:
            reported.append(event)

    class SlowCells:
        async def publish(self, version: int) -> None:
            await asyncio.sleep(0.02)

    async def twice() -> None:
        desk = CellDesk(SlowCells(), Report(), lambda what, error: None)  # type: ignore[arg-type]
        for _ in range(2):
            desk.publish(cmd.PublishWeights(0.0, 1))
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        await desk.stop()

    asyncio.run(twice())
    assert reported == [ev.WeightsPublished(0.0, 1)]
