"""A run is ended and taken up again: nothing that was done is done again, nothing that was begun is lost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from ledger import read_ledger
from local_run import LocalRun, Plan, diary_of, local_run

from gyre import commands as cmd
from gyre import events as ev
from gyre.backends.run.sealed import write_sealed
from gyre.cluster import CellState
from gyre.errors import InputError
from gyre.events import Event
from gyre.journal import Entry, Header, to_line
from gyre.report.folder import JOURNAL
from gyre.report.journal_file import JournalReader

DEEP = Plan(steps=4, phi=1.0, mu=1, nap_s=0.01)


def drive(run: LocalRun) -> bool:
    return asyncio.run(run.cluster.run())


def stop_at(run: LocalRun, when: Callable[[Event], bool]) -> None:
    """Stop a run right after the first event that is `when`."""
    commit = run.cluster._journal.commit

    def watched(event: Event) -> list[cmd.Command]:
        commands = commit(event)
        if when(event):
            run.cluster.stop()
        return commands

    run.cluster._journal.commit = watched  # type: ignore[method-assign]


def begun(folder: Path, plan: Plan, when: Callable[[Event], bool]) -> set[int]:
    """Make a run up to an event; return the groups that were ready then, and not taken."""
    with local_run(folder, plan) as run:
        stop_at(run, when)
        assert drive(run) is False
        taken = set(run.controller.step.groups)
        return {number for number, group in run.controller.pool.groups.items() if group.ready_s is not None} - taken


def resumed(folder: Path, plan: Plan) -> LocalRun:
    with local_run(folder, plan, resume=True) as run:
        assert drive(run) is True
    return run


def entries(folder: Path) -> list[Entry]:
    return [entry for entry in JournalReader(folder / JOURNAL) if not isinstance(entry, Header)]


def trained(folder: Path) -> list[int]:
    return [group for update in read_ledger(folder / "ledger.json") for group, _ in update]


def starts(folder: Path) -> list[str]:
    return [name.partition("-")[0] for word, name in diary_of(folder) if word == "start"]


def is_update(version: int) -> Callable[[Event], bool]:
    return lambda event: isinstance(event, ev.UpdateApplied) and event.version == version


def test_groups_that_wait_for_training_are_not_dropped(tmp_path: Path) -> None:
    """OpenRLHF#1322: the data went on behind all that was generated, and what waited in a buffer was gone."""
    folder = tmp_path / "run"
    plan = Plan(steps=3, phi=2.0, mu=1, nap_s=0.01, capacity=12)
    ready: list[int] = []

    def enough(event: Event) -> bool:
        ready.append(isinstance(event, ev.ExecutionScored))
        return sum(ready) == 12  # six groups: two in the open step, four wait

    waiting = begun(folder, plan, enough)
    before = starts(folder)
    resumed(folder, plan)
    assert len(waiting) >= 2
    assert waiting <= set(trained(folder))
    again = starts(folder)[len(before) :]
    assert not {int(execution) // 2 for execution in again} & waiting, "their rollouts are not made again"


def test_nothing_that_was_trained_is_rolled_out_again(tmp_path: Path) -> None:
    """trl#5911: the trainer skipped to its step by pulling batches, each of which was generated for that."""
    folder = tmp_path / "run"
    begun(folder, DEEP, is_update(2))
    before = starts(folder)
    done = {entry.execution for entry in entries(folder) if isinstance(entry, ev.ExecutionFinished)}
    resumed(folder, DEEP)
    again = {int(execution) for execution in starts(folder)[len(before) :]}
    assert done
    assert not again & done
    assert len(set(trained(folder))) == len(trained(folder)) == DEEP.steps * DEEP.groups_per_step


def test_what_was_under_way_is_not_skipped(tmp_path: Path) -> None:
    """NeMo-RL#3594: the data went on at each dispatch, and what had not ended, the long ones above all, was skipped."""
    folder = tmp_path / "run"
    begun(folder, DEEP, is_update(1))
    dispatched = [entry for entry in entries(folder) if isinstance(entry, cmd.DispatchGroup)]
    resumed(folder, DEEP)
    every = [entry for entry in entries(folder) if isinstance(entry, cmd.DispatchGroup)]
    assert every[: len(dispatched)] == dispatched
    assert [entry.task for entry in every] == list(range(len(every))), "no task is left out, none comes twice"
    assert {entry.group for entry in dispatched} <= set(trained(folder))


def test_updates_after_the_last_checkpoint_are_made_again_of_the_same_samples(tmp_path: Path) -> None:
    folder, plan = tmp_path / "run", Plan(steps=4, every=4, nap_s=0.01)
    with local_run(folder, plan) as run:
        stop_at(run, is_update(3))
        assert drive(run) is False
        lost = [list(update) for update in run.training.updates]
    assert read_ledger(folder / "ledger.json") == []
    before = starts(folder)
    again = resumed(folder, plan)
    assert [sorted(update) for update in again.training.updates[:3]] == [sorted(update) for update in lost]
    dispatched = {int(execution) // 2 for execution in starts(folder)[len(before) :]}
    assert not dispatched & {group for update in lost for group, _ in update}


def test_an_update_that_was_saved_and_not_journaled_is_not_made_again(tmp_path: Path) -> None:
    folder, plan = tmp_path / "run", Plan(steps=2, nap_s=0.01)
    begun(folder, plan, is_update(1))
    lines = (folder / JOURNAL).read_text().splitlines(keepends=True)
    cut = next(number for number, line in enumerate(lines) if "UpdateApplied" in line)
    (folder / JOURNAL).write_text("".join(lines[:cut]))  # as if the driver had died right after the checkpoint
    saved = read_ledger(folder / "ledger.json")
    assert len(saved) == 1
    resumed(folder, plan)
    assert read_ledger(folder / "ledger.json")[0] == saved[0]
    versions = [entry.version for entry in entries(folder) if isinstance(entry, ev.UpdateApplied)]
    assert versions == [1, 2]


def test_a_run_that_is_complete_stays_as_it_is(tmp_path: Path) -> None:
    folder, plan = tmp_path / "run", Plan(steps=1, nap_s=0.01)
    with local_run(folder, plan) as run:
        assert drive(run)
    before = (folder / JOURNAL).read_bytes()
    resumed(folder, plan)
    assert (folder / JOURNAL).read_bytes() == before
    assert list((folder / "samples").glob("group-*")) == []
    assert list((folder / "executions").iterdir()) == []


def test_time_goes_on_where_it_stood(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    begun(folder, DEEP, is_update(1))
    last_s = entries(folder)[-1].time_s
    resumed(folder, DEEP)
    times = [entry.time_s for entry in entries(folder)]
    assert times == sorted(times)
    again = next(entry for entry in entries(folder) if isinstance(entry, ev.RunResumed))
    assert last_s <= again.time_s < last_s + 60.0, "the time in which nobody drove the run does not count"


def test_scores_are_found_again(tmp_path: Path) -> None:
    """The journal lost the scores, as by a power failure; the record of evaluations has them."""
    folder, plan = tmp_path / "run", Plan(steps=1, nap_s=0.01)
    begun(folder, plan, lambda event: isinstance(event, ev.ExecutionScored) and event.execution == 3)
    lines = (folder / JOURNAL).read_text().splitlines(keepends=True)
    first = next(number for number, line in enumerate(lines) if '"ExecutionScored"' in line)
    (folder / JOURNAL).write_text("".join(lines[:first]))
    scored = {json.loads(line)["execution"] for line in lines if '"ExecutionScored"' in line}
    run = resumed(folder, plan)
    asked = {int(name.partition("-")[0]) for name, _ in run.evaluator.asked}
    assert scored
    assert not asked & scored


# What cannot be taken up


def test_two_drivers_do_not_share_a_folder(tmp_path: Path) -> None:
    plan = Plan()
    with (
        local_run(tmp_path / "run", plan),
        pytest.raises(InputError, match="in use by process"),
        local_run(tmp_path / "run", plan, resume=True),
    ):
        pass


def test_a_torn_last_line_is_cut_off(tmp_path: Path) -> None:
    folder, plan = tmp_path / "run", Plan(steps=1, nap_s=0.01)
    begun(folder, plan, lambda event: isinstance(event, ev.ExecutionStarted))
    with (folder / JOURNAL).open("a") as file:
        file.write('{"event":"ExecutionFin')
    resumed(folder, plan)
    assert trained(folder) == [0, 1] or trained(folder) == [1, 0]


def test_a_damaged_journal_is_named(tmp_path: Path) -> None:
    folder, plan = tmp_path / "run", Plan(nap_s=0.01)
    begun(folder, plan, is_update(1))
    lines = (folder / JOURNAL).read_text().splitlines(keepends=True)
    lines[4] = lines[4].replace(":", ";", 1)
    (folder / JOURNAL).write_text("".join(lines))
    with (
        pytest.raises(InputError, match=r"journal\.jsonl: line 5: .* restore the file"),
        local_run(folder, plan, resume=True),
    ):
        pass


def test_a_journal_that_says_something_else_is_refused(tmp_path: Path) -> None:
    """An event that is whole and wrong: the controller commands something else than stands there."""
    folder, plan = tmp_path / "run", Plan(nap_s=0.01)
    begun(folder, plan, is_update(1))
    text = (folder / JOURNAL).read_text()
    (folder / JOURNAL).write_text(text.replace('"capacity":4', '"capacity":3'))
    with (
        pytest.raises(InputError, match=r"the journal (says|lacks).* other settings"),
        local_run(folder, plan, resume=True),
    ):
        pass


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    folder, plan = tmp_path / "run", Plan(nap_s=0.01)
    begun(folder, plan, lambda event: isinstance(event, ev.ExecutionStarted))
    write_sealed(folder / "ledger.json", "ledger", {"updates": [[[7, ""]], [[8, ""]], [[9, ""]]]})
    with local_run(folder, plan, resume=True) as run, pytest.raises(InputError, match="trainer has version 3"):
        drive(run)


def test_a_checkpoint_that_is_too_old_is_refused(tmp_path: Path) -> None:
    folder, plan = tmp_path / "run", Plan(nap_s=0.01)
    begun(folder, plan, lambda event: isinstance(event, ev.CheckpointSaved) and event.version == 2)
    (folder / "ledger.json").unlink()
    with local_run(folder, plan, resume=True) as run, pytest.raises(InputError, match="not kept any more"):
        drive(run)


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    folder, plan = tmp_path / "run", Plan(nap_s=0.01)
    begun(folder, plan, lambda event: isinstance(event, ev.ExecutionFinished))
    path = next((folder / "executions").glob("*/*/end.json"))
    path.write_text(path.read_text().replace('"steps":3', '"steps":4'))
    with local_run(folder, plan, resume=True) as run, pytest.raises(InputError, match=r"end\.json: damaged"):
        drive(run)


def test_a_journal_that_contradicts_itself_is_refused_in_one_line(tmp_path: Path) -> None:
    """Such as one of another cluster: its cells and groups are not those that this run knows."""
    folder = tmp_path / "run"
    begun(folder, DEEP, is_update(1))
    lines = (folder / JOURNAL).read_text().splitlines(keepends=True)
    for wrong in (ev.CellChanged(lines_time(lines), 99, CellState.SERVING), ev.WeightsPublished(lines_time(lines), 9)):
        (folder / JOURNAL).write_text("".join([*lines, to_line(wrong) + "\n"]))
        with (
            pytest.raises(InputError, match="with other settings or by another gyre"),
            local_run(folder, DEEP, resume=True),
        ):
            pass


def lines_time(lines: list[str]) -> float:
    """Time of the last line."""
    return float(json.loads(lines[-1])["time_s"])
