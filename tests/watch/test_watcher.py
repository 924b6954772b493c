"""Figures of each step against journals worked out by hand; nothing is counted twice or lost."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from watch_journals import CELLS, Plan, planned_journal

from gyre import commands as cmd
from gyre import events as ev
from gyre.cluster import CellState
from gyre.journal import Entry, Header, from_line
from gyre.watch import RunHealth, Watcher, health_of, metrics_jsonl, step_metrics
from gyre.watch.clustered import Clustered, difference_in_errors
from gyre.watch.metrics import gauges


def finished(time_s: float, execution: int, outcome: str, calls: int, tokens: int = 100) -> ev.ExecutionFinished:
    return ev.ExecutionFinished(time_s, execution, outcome, ((0, tokens),), calls)


def scored(time_s: float, execution: int, score: float, **checks: float) -> ev.ExecutionScored:
    return ev.ExecutionScored(time_s, execution, True, score, (10,), checks=tuple(checks.items()))


def hand_journal() -> list[Header | Entry]:
    """Two groups of two: group 0 loses an execution that is replaced, group 1 is all 0; a third group is dropped."""
    return [
        Header({"policy": "elastic"}),
        ev.RunStarted(0.0, CELLS),
        cmd.DispatchGroup(0.0, 0, 0, (0, 1), 7),
        cmd.DispatchGroup(0.0, 1, 0, (2, 3), 8),
        cmd.DispatchGroup(0.0, 2, 0, (4, 5), 9),
        *(ev.ExecutionStarted(1.0, execution, 0) for execution in range(5)),
        finished(5.0, 0, "completed", 10),
        ev.ExecutionLost(6.0, 1, "host died"),
        cmd.AddExecutions(6.0, 0, (6,)),
        ev.ExecutionStarted(6.0, 6, 0),
        scored(7.0, 0, 1.0, tests=1.0, format=0.0),
        finished(10.0, 6, "harness_timeout", 20),
        ev.ExecutionScored(11.0, 6, False, None, (), 0, "timed out"),
        scored(12.0, 6, 0.5, tests=0.5, format=1.0),
        finished(13.0, 2, "completed", 4),
        finished(13.0, 3, "env_setup_failed", 0, 0),  # counts with a score of 0
        scored(14.0, 2, 0.0, tests=0.0, format=1.0),
        cmd.CancelExecution(15.0, 5, "scores are all the same"),
        finished(16.0, 4, "overall_timeout", 30),
        cmd.DropGroup(16.0, 2, "too few valid scores"),
        scored(17.0, 4, 1.0),  # nobody waits for it
        ev.CellChanged(18.0, 0, CellState.TO_TRAINING),
        ev.CellChanged(20.0, 0, CellState.TRAINING),
        cmd.OpenStep(20.0, 0),
        cmd.OfferMicroSteps(20.0, 0, 0, 0, 0, ((10,),)),
        cmd.OfferMicroSteps(20.0, 0, 1, 0, 1, ((10,),)),
        ev.UpdateApplied(30.0, 1, (("kl", 0.02), ("loss", -0.5))),
        cmd.ReleaseGroup(30.0, 0),
        cmd.StopRun(30.0, 1),
    ]


def test_a_step_worked_out_by_hand() -> None:
    (step,) = health_of(hand_journal()).steps
    values = step_metrics(step)
    assert (step.groups, step.executions) == (2, 5)
    assert values["rollout/completion_rate"] == 2 / 5, "0 and 2 of 0, 1 (lost), 6, 2, 3"
    assert dict(step.outcomes) == {"completed": 2, "lost": 1, "harness_timeout": 1, "env_setup_failed": 1}
    assert values["rollout/score"] == (1.0 + 0.5 + 0.0 + 0.0) / 4, "a placeholder counts as 0"
    assert values["rollout/tool_calls"] == (10 + 20 + 4 + 0) / 4
    assert values["rollout/check/tests"] == 0.5
    assert values["rollout/check/format"] == pytest.approx(2 / 3)
    assert values["rollout/invalid_share"] == 1 / 4
    assert (step.scores.groups, step.scores.zero, step.scores.one) == (2, 1, 0)
    assert step.zero_variance_share == 1 / 2
    assert (values["train/kl"], values["train/loss"]) == (0.02, -0.5)
    assert (values["switch/count"], values["switch/seconds"]) == (1, 2.0)
    assert (values["health/evaluations_failed"], values["health/evaluations_late"]) == (1, 1)
    assert dict(step.flow.failed) == {"timed out": 1}
    assert dict(step.flow.cancelled) == {"scores are all the same": 1}
    assert dict(step.flow.dropped) == {"too few valid scores": 1}
    assert (step.flow.added, step.flow.dispatched, dict(step.flow.lost)) == (1, 7, {"host died": 1})
    # By the time of their end: the dropped group's execution counts, the cancelled one says nothing.
    assert values["ended/completion_rate"] == 2 / 6
    assert dict(step.trained_octaves) == {2: 2, 3: 1}, "4 s, 4 s and 12 s"


def test_the_error_is_that_of_a_mean_over_groups() -> None:
    """Groups of one size: the error of the mean of group means; 0.75 and 0 here."""
    (step,) = health_of(hand_journal()).steps
    score = step.means["score"]
    assert score.error == pytest.approx(np.std([0.75, 0.0], ddof=1) / math.sqrt(2))


@given(st.lists(st.tuples(st.integers(1, 9), st.floats(-5, 5)), min_size=2, max_size=20))
def test_clustered_means_add_up(groups: list[tuple[int, float]]) -> None:
    whole, parts = Clustered(), [Clustered(), Clustered()]
    for index, (count, mean) in enumerate(groups):
        whole.add(count, count * mean)
        parts[index % 2].add(count, count * mean)
    counts = np.array([count for count, _ in groups])
    totals = np.array([count * mean for count, mean in groups])
    mean = totals.sum() / counts.sum()
    size = len(groups)
    error = math.sqrt(size / (size - 1) * ((totals - mean * counts) ** 2).sum()) / counts.sum()
    for found in (whole, parts[0] + parts[1]):
        assert found.mean == pytest.approx(mean, abs=1e-9)
        assert found.error == pytest.approx(error, abs=1e-6)


def test_errors_cover_the_true_mean_although_members_are_alike() -> None:
    """About 95 % of the intervals hold the true mean; an error over single executions would hold it far less often."""
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(400):
        mean = Clustered()
        for rate in rng.uniform(0, 1, 40):
            mean.add(8, float(rng.binomial(8, rate)))
        assert mean.mean is not None
        assert mean.error is not None
        hits += abs(mean.mean - 0.5) < 1.96 * mean.error
    assert 0.91 < hits / 400 < 0.985


def test_differences_in_errors() -> None:
    one, other = Clustered(), Clustered()
    assert math.isnan(difference_in_errors(one, other))
    one.add(1, 1.0)
    other.add(1, 0.0)
    assert difference_in_errors(one, other) == math.inf
    assert difference_in_errors(one, one) == 0.0


@settings(max_examples=15)
@given(st.integers(0, 1000), st.sampled_from([0.6, 1.0]), st.integers(1, 5), st.integers(1, 4), st.sampled_from([0, 2]))
def test_asking_on_the_way_changes_nothing_and_flows_sum_to_what_was_dispatched(
    seed: int, valid: float, steps: int, size: int, staleness: int
) -> None:
    plan = Plan(
        steps=steps,
        groups=3,
        size=size,
        seed=seed,
        valid=lambda _: valid,
        staleness=staleness,
        checks={"a": lambda _: 0.5},
    )
    entries = list(planned_journal(plan))
    watcher = Watcher()
    for entry in entries:
        watcher.add(entry)
        flow = watcher.health().flow
        assert flow.dispatched == flow.outcomes.total() - flow.restarted + watcher.health().open_executions
    assert watcher.health() == health_of(entries)
    assert watcher.health().open_executions == 0
    trained = sum(step.executions for step in watcher.steps)
    assert trained == flow.dispatched, "each of these journals' executions is trained once"


def resumed_journal() -> list[Header | Entry]:
    """Step 1 is made twice: its update was lost with the machine."""
    entries = list(planned_journal(Plan(steps=3, groups=2, size=2, kl=lambda step: 0.01 * step)))
    updates = [index for index, entry in enumerate(entries) if isinstance(entry, ev.UpdateApplied)]
    offers = [entry for entry in entries if isinstance(entry, cmd.OfferMicroSteps) and entry.step == 1]
    cut = updates[1] + 1
    again: list[Entry] = [ev.RunResumed(2000.0, 1, CELLS), cmd.OpenStep(2000.0, 1), *offers]
    again.append(ev.UpdateApplied(2000.0, 2, (("kl", 0.5),)))
    return [*entries[:cut], *again, *entries[cut:]]


def test_an_update_that_is_made_again_replaces_the_first() -> None:
    health = health_of(resumed_journal())
    assert [step.step for step in health.steps] == [0, 1, 2]
    assert [step.metrics["kl"] for step in health.steps] == [0.0, 0.5, 0.02]
    assert [step.executions for step in health.steps] == [4, 4, 4]
    assert health.flow.dispatched == health.flow.outcomes.total() == 12


def test_a_lost_execution_that_is_tried_again_is_counted_once() -> None:
    entries = hand_journal()
    lost = next(index for index, entry in enumerate(entries) if isinstance(entry, ev.ExecutionLost))
    entries[lost + 1] = ev.ExecutionStarted(6.0, 1, 0)
    entries.insert(lost + 2, finished(6.5, 1, "completed", 1))
    flow = health_of(entries).flow
    assert flow.restarted == 1
    assert flow.dispatched == flow.outcomes.total() - flow.restarted == 6


def test_a_member_that_a_group_went_on_without_ends_later() -> None:
    """Redundancy: the group is trained while its last member still runs, and the member is cancelled after."""
    entries: list[Header | Entry] = [
        cmd.DispatchGroup(0.0, 0, 0, (0, 1, 2)),
        *(ev.ExecutionStarted(0.0, execution, 0) for execution in range(3)),
        *(finished(1.0, execution, "completed", 1) for execution in range(2)),
        *(scored(2.0, execution, float(execution)) for execution in range(2)),
        cmd.OpenStep(2.0, 0),
        cmd.OfferMicroSteps(2.0, 0, 0, 0, 0, ((10,),)),
        ev.UpdateApplied(3.0, 1),
        cmd.CancelExecution(4.0, 2, "enough"),
        scored(5.0, 2, 1.0),
    ]
    health = health_of(entries)
    assert health.open_executions == 0
    assert health.flow.dispatched == health.flow.outcomes.total() == 3
    assert (health.rest.late, dict(health.rest.cancelled)) == (1, {"enough": 1})
    assert health.steps[0].means["score"].count == 2


def test_a_journal_of_version_1_has_no_tool_calls_and_no_checks() -> None:
    line = '{"event":"ExecutionFinished","time_s":5.0,"execution":0,"outcome":"completed","version_tokens":[[0,9]]}'
    entries: list[Header | Entry] = [
        cmd.DispatchGroup(0.0, 0, 0, (0,)),
        ev.ExecutionStarted(1.0, 0, 0),
        from_line(line, 2),
    ]
    health = health_of(entries)
    assert health.rest.means["tool_calls"].total == 0.0
    assert health.rest.means["completion"].mean == 1.0


def test_metrics_are_json_lines_and_gauges_say_where_the_run_stands() -> None:
    health = health_of(planned_journal(Plan(steps=12, groups=8, kl=lambda step: 0.3)))
    assert metrics_jsonl(health).count("\n") == 12
    now = gauges(health)
    assert now["updates"] == 12
    assert now["alert/kl_high"] == 1.0
    assert now["train/kl"] == 0.3
    assert gauges(RunHealth()) == {"updates": 0.0, "health/open_executions": 0.0}
