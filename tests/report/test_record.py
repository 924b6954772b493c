"""A run's tables against figures worked out by hand from the journal."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from report_journal import CELLS, HEADER, hand_journal
from report_toy import Toy, toy_journal

from gyre import commands as cmd
from gyre import events as ev
from gyre.cluster import CellState
from gyre.journal import Entry, Header
from gyre.report.record import RunRecord, RunRecorder, record_run


@pytest.fixture(scope="module")
def record() -> RunRecord:
    return record_run(hand_journal())


def rows(frame: pl.DataFrame, *columns: str) -> list[tuple[object, ...]]:
    return frame.select(columns).rows()


def test_the_run_ends_with_its_last_step(record: RunRecord) -> None:
    assert (record.start_s, record.end_s, record.complete, record.gpus) == (0.0, 50.0, True, 5)
    assert record.settings == HEADER.settings
    assert record.problems == {}


def test_uses_of_the_cells(record: RunRecord) -> None:
    assert rows(record.cells.filter(pl.col("cell") == 0), "start_s", "end_s", "use") == [
        (0.0, 15.0, "serving"),
        (15.0, 20.0, "switching"),
        (20.0, 30.0, "training"),
        (30.0, 32.0, "updating"),
        (32.0, 36.0, "waiting_for_samples"),
        (36.0, 40.0, "waiting_for_others"),
        (40.0, 41.0, "updating"),
        (41.0, 44.0, "publishing"),
        (44.0, 50.0, "waiting_for_samples"),
    ]
    assert rows(record.cells.filter(pl.col("cell") == 1), "start_s", "end_s", "use") == [
        (0.0, 27.0, "serving"),
        (27.0, 29.0, "switching"),
        (29.0, 32.0, "waiting_for_others"),
        (32.0, 36.0, "waiting_for_samples"),
        (36.0, 40.0, "training"),
        (40.0, 41.0, "waiting_for_others"),
        (41.0, 44.0, "publishing"),
        (44.0, 47.0, "switching"),
        (47.0, 48.0, "serving"),
        (48.0, 50.0, "failed"),
    ]


def test_gpu_seconds_by_use(record: RunRecord) -> None:
    usage = {(cell, use): gpu_s for cell, use, gpu_s in record.usage.rows() if gpu_s}
    assert usage == {
        (0, "serving_busy"): 2 * 12.0,
        (0, "serving_idle"): 2 * 3.0,
        (0, "training"): 2 * 10.0,
        (0, "updating"): 2 * 3.0,
        (0, "publishing"): 2 * 3.0,
        (0, "switching"): 2 * 5.0,
        (0, "waiting_for_samples"): 2 * 10.0,
        (0, "waiting_for_others"): 2 * 4.0,
        (1, "serving_busy"): 3 * 16.0,
        (1, "serving_idle"): 3 * 4.0,
        (1, "serving_unmetered"): 3 * 8.0,
        (1, "training"): 3 * 4.0,
        (1, "publishing"): 3 * 3.0,
        (1, "switching"): 3 * 5.0,
        (1, "waiting_for_samples"): 3 * 4.0,
        (1, "waiting_for_others"): 3 * 4.0,
        (1, "failed"): 3 * 2.0,
    }
    assert record.usage["gpu_s"].sum() == 5 * 50.0


def test_steps(record: RunRecord) -> None:
    assert rows(record.steps, *record.steps.columns) == [
        (0, 20.0, 30.0, 30.0, 32.0, None, 32.0, 1, 2, 1, 100, 0.0, 0),
        (1, 36.0, 40.0, 40.0, 41.0, 44.0, 12.0, 1, 1, 1, 25, 1.0, 1),
    ]


def test_micro_steps(record: RunRecord) -> None:
    assert record.micro_steps.rows() == [
        (0, 0, 0, 20.0, 26.0, 60, True),
        (0, 0, 1, 26.0, 30.0, 40, True),
        (1, 1, 0, 36.0, 40.0, 25, True),
    ]


def test_groups_and_their_staleness(record: RunRecord) -> None:
    times = rows(record.groups, "group", "dispatched_s", "first_started_s", "ready_s", "taken_s", "consumed_s", "state")
    assert times == [
        (0, 0.0, 2.0, 15.0, 20.0, 32.0, "consumed"),
        (1, 0.0, 2.0, 36.0, 36.0, 41.0, "consumed"),
        (2, 0.0, 2.0, 21.0, None, None, "dropped"),
    ]
    assert rows(record.groups, "version_trained", "staleness_dispatch", "staleness_dequeue", "staleness_start") == [
        (0, 0, 0, 0),
        (1, 1, 1, 1),
        (None, None, None, None),
    ]
    # Step 1 trains on group 1: the valid member sampled 30 tokens by version 0 and 10 by version 1.
    tokens = rows(record.groups, "token_staleness_oldest", "token_staleness_mean", "token_staleness_newest")
    assert tokens == [(0, 0.0, 0), (1, 0.75, 0), (None, None, None)]
    assert record.token_staleness.rows() == [(0, 100 + 50 + 10), (1, 30)]
    assert rows(record.groups, "tokens", "trained_tokens") == [(150, 100), (120, 25), (0, 0)]


def test_executions_and_losses(record: RunRecord) -> None:
    columns = ("started_s", "finished_s", "scored_s", "outcome", "valid", "score", "tokens", "lost_reason")
    assert rows(record.executions, *columns) == [
        (2.0, 10.0, 13.0, "completed", True, 1.0, 100, None),
        (2.0, 12.0, 15.0, "harness_timeout", True, 0.0, 50, None),
        (2.0, 33.0, 36.0, "completed", True, 0.5, 40, None),
        (2.0, 34.0, None, "overall_timeout", None, None, 80, "overall_timeout"),
        (2.0, 21.0, None, None, None, None, 0, "container lost"),
        (None, None, None, None, None, None, 0, "group dropped: too few members"),
    ]
    assert sorted(record.losses.rows()) == [
        ("execution", "container lost", 1),
        ("execution", "group dropped: too few members", 1),
        ("execution", "overall_timeout", 1),
        ("group", "too few members", 1),
    ]


def test_levels(record: RunRecord) -> None:
    assert record.levels.rows() == [
        (0.0, 6, 0, 10, 0),
        (2.0, 6, 5, 10, 0),
        (10.0, 5, 4, 10, 0),
        (12.0, 4, 3, 10, 0),
        (13.0, 4, 3, 10, 0),
        (14.0, 4, 3, 10, 0),
        (15.0, 4, 3, 6, 1),
        (20.0, 4, 3, 6, 0),
        (21.0, 2, 2, 6, 0),
        (27.0, 2, 2, 0, 0),
        (29.0, 2, 2, 0, 0),
        (33.0, 1, 1, 0, 0),
        (34.0, 0, 0, 0, 0),
        (36.0, 0, 0, 0, 0),
        (44.0, 0, 0, 0, 0),
        (47.0, 0, 0, 6, 0),
        (48.0, 0, 0, 0, 0),
        (50.0, 0, 0, 0, 0),
    ]


def test_a_core_that_fails_ends_its_update_but_not_its_publish() -> None:
    specs = tuple(replace(spec, state=CellState.TRAINING) for spec in CELLS)
    updating: list[Entry] = [ev.RunStarted(0.0, specs), cmd.OpenStep(1.0, 0), cmd.ApplyUpdate(4.0, 0)]
    after: list[Entry] = [ev.CellFailed(6.0, 0), ev.Timer(9.0, "end")]
    cells = record_run([*updating, *after]).cells.filter(pl.col("cell") == 1)
    assert rows(cells, "start_s", "use") == [(0.0, "waiting_for_others"), (6.0, "waiting_for_samples")]
    publishing: list[Entry] = [ev.RunStarted(0.0, CELLS), cmd.PublishWeights(4.0, 1)]
    cells = record_run([*publishing, *after]).cells.filter(pl.col("cell") == 1)
    assert rows(cells, "start_s", "use") == [(0.0, "serving"), (4.0, "publishing")]


def test_a_run_can_be_read_while_it_goes_on() -> None:
    recorder, journal = RunRecorder(), hand_journal()
    for entry in journal[:30]:
        recorder.add(entry)
    partial = recorder.finish()
    assert not partial.complete
    for entry in journal[30:]:
        recorder.add(entry)
    assert recorder.finish().cells.equals(record_run(journal).cells)


def test_a_journal_cut_off_in_its_first_moment_is_still_a_run() -> None:
    report = ev.LoadReport(0.0, 0, 0, 0, 0, 0.0, 0.0, 0, 0, 0)
    record = record_run([HEADER, ev.RunStarted(0.0, CELLS), report])
    assert record.wall_s == 0.0
    assert record.usage["gpu_s"].sum() == 0.0


def test_entries_that_make_no_sense_are_counted() -> None:
    journal = hand_journal()
    journal[9:9] = [
        ev.ExecutionStarted(0.0, 99, 0),
        ev.MicroStepDone(0.0, 0, 0, 5),
        cmd.DispatchGroup(0.0, 0, 0, (0, 1)),
    ]
    journal.insert(-2, ev.CellChanged(3.0, 9, CellState.SERVING))
    found = record_run(journal)
    assert found.problems == {
        "ExecutionStarted names an unknown id": 1,
        "micro-step returned by a cell that had not claimed it": 1,
        "group dispatched twice": 1,
        "time runs backwards": 1,
        "CellChanged names an unknown id": 1,
    }
    assert found.usage.equals(record_run(hand_journal()).usage)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_line_lost_or_doubled_is_noticed(seed: int) -> None:
    """Of entries that say what one execution or micro-step did, nearly every one is missed, and seen twice."""
    journal = list(toy_journal(Toy(steps=3, seed=seed)))
    kinds = (cmd.StartExecution, ev.ExecutionStarted, cmd.ScoreExecution, ev.ExecutionScored, ev.MicroStepDone)
    places = [index for index, entry in enumerate(journal) if isinstance(entry, kinds)]
    last = next(index for index, entry in enumerate(journal) if isinstance(entry, cmd.OpenStep) and entry.step == 1)
    places = [index for index in places if index < last]
    assert len(places) > 30
    doubled = [index for index in places if not record_run([*journal[: index + 1], *journal[index:]]).problems]
    lost = [index for index in places if not record_run([*journal[:index], *journal[index + 1 :]]).problems]
    assert doubled == []
    assert len(lost) < len(places) / 4


def test_a_step_that_begins_again_ends_what_cells_held_of_it() -> None:
    """The core fails while cell 1 holds a micro-step: it never returns, and is no fault of the journal."""
    journal: list[Header | Entry] = [HEADER, ev.RunStarted(0.0, CELLS)]
    journal += [cmd.DispatchGroup(0.0, 0, 0, (0,)), cmd.StartExecution(0.0, 0)]
    journal += [ev.ExecutionStarted(0.0, 0, 0), ev.ExecutionFinished(1.0, 0, "completed", ((0, 9),))]
    journal += [cmd.ScoreExecution(1.0, 0, 0), ev.ExecutionScored(1.0, 0, True, 1.0, (9,))]
    offer = cmd.OfferMicroSteps(2.0, 0, 0, 0, 0, ((9,),))
    journal += [cmd.OpenStep(2.0, 0), offer, ev.MicroStepClaimed(2.0, 1, 0, 0), ev.CellFailed(3.0, 0)]
    again: list[Entry] = [cmd.OpenStep(5.0, 0), replace(offer, time_s=5.0), ev.MicroStepClaimed(5.0, 1, 0, 0)]
    journal += [ev.CellJoined(4.0, 0), *again, ev.MicroStepDone(7.0, 1, 0, 0), cmd.ApplyUpdate(7.0, 0)]
    found = record_run(journal)
    assert found.problems == {}
    spans = found.micro_steps.select("start_s", "end_s", "returned").rows()
    assert spans == [(2.0, 5.0, False), (5.0, 7.0, True)]


def test_an_empty_journal_gives_empty_tables() -> None:
    found = record_run([HEADER])
    assert (found.wall_s, found.gpus, found.complete) == (0.0, 0, False)
    assert found.cells.is_empty()
    assert found.levels.is_empty()


TOYS = st.builds(
    Toy,
    policy=st.sampled_from(["colocate", "async", "elastic"]),
    steps=st.integers(1, 4),
    groups_per_step=st.integers(1, 4),
    group_size=st.integers(2, 4),
    cells=st.integers(2, 5),
    capacity=st.integers(1, 12),
    gpus=st.integers(1, 8),
    loss_rate=st.sampled_from([0.0, 0.1]),
    score_failure_rate=st.sampled_from([0.0, 0.3]),
    cell_failures=st.sampled_from([(), ((4000.0, 1, 900.0),), ((9000.0, 0, 700.0), (9500.0, 1, 50.0))]),
    seed=st.integers(0, 1000),
)


@settings(max_examples=40, deadline=None)
@given(toy=TOYS)
def test_laws_that_hold_for_every_run(toy: Toy) -> None:
    found = record_run(toy_journal(toy))
    assert found.complete
    assert found.problems == {}
    for cell in range(toy.cells):
        lane = found.cells.filter(pl.col("cell") == cell)
        assert lane["start_s"][0] == found.start_s
        assert lane["end_s"][-1] == found.end_s
        assert lane["end_s"][:-1].to_list() == lane["start_s"][1:].to_list()
        assert (lane["end_s"] > lane["start_s"]).all()
        assert (lane["use"][1:] != lane["use"][:-1]).all()
        used_s = found.usage.filter(pl.col("cell") == cell)["gpu_s"]
        assert (used_s >= 0.0).all()
        assert used_s.sum() == pytest.approx(toy.gpus * found.wall_s, rel=1e-12)
    steps = found.steps
    assert steps["step"].to_list() == list(range(toy.steps))
    assert steps["duration_s"].sum() == pytest.approx(found.wall_s, rel=1e-12)
    consumed = found.groups.filter(pl.col("state") == "consumed")
    assert consumed.height == steps["groups"].sum()
    assert consumed["trained_tokens"].sum() == steps["tokens"].sum()
    assert (consumed["staleness_dispatch"] >= 0).all()
    assert (found.levels["water_level"] >= 0).all()
    assert (found.levels["ready_groups"] >= 0).all()
    assert (found.levels["running"] <= found.levels["water_level"]).all()
    last = found.levels.row(-1, named=True)
    unended = found.executions.filter(pl.col("finished_s").is_null() & pl.col("lost_reason").is_null()).height
    assert last["water_level"] == unended


@settings(max_examples=10, deadline=None)
@example(
    toy=Toy(
        "colocate",
        steps=2,
        groups_per_step=2,
        group_size=3,
        cells=3,
        capacity=5,
        gpus=1,
        cell_failures=((9000.0, 0, 700.0), (9500.0, 1, 50.0)),
        seed=31,
    )
)
@given(toy=TOYS)
def test_training_time_is_the_micro_steps_time(toy: Toy) -> None:
    found = record_run(toy_journal(toy))
    in_lanes = (
        found.cells.filter(pl.col("use") == "training").select((pl.col("end_s") - pl.col("start_s")).sum()).item()
    )
    in_steps = found.micro_steps.select((pl.col("end_s") - pl.col("start_s")).sum()).item()
    assert in_lanes == pytest.approx(in_steps, rel=1e-9)
