"""Groups in simulated runs: verifiers that hang, spare and replaced members, and what the buffer may hold."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from toy_runs import hardware, program, settings, simulate, update_times

from gyre.commands import AddExecutions, CancelExecution, DispatchGroup, DropGroup, OfferMicroSteps, ScoreExecution
from gyre.config import RunSettings
from gyre.errors import InputError
from gyre.events import ExecutionFinished, ExecutionScored, UpdateApplied
from gyre.journal import to_line
from gyre.policies import POLICIES
from gyre.replay import replay
from gyre.report.record import record_run
from gyre.sim import cluster as sim_cluster
from gyre.sim.rollouts import Rollouts
from gyre.sim.run import Run

LENGTHS = [[float(5 + (7 * group + 11 * member) % 23) for member in range(4)] for group in range(12)]


def changed(run: RunSettings, **tables: dict[str, Any]) -> RunSettings:
    """The settings with some keys of some tables set."""
    values = run.model_dump(mode="json")
    for table, keys in tables.items():
        values[table] |= keys
    return RunSettings.model_validate(values)


def step_times(run: RunSettings) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.diff([0.0, *update_times(simulate(run, program(LENGTHS, decode=True), hardware()))])


def test_a_hung_verifier_costs_a_step_no_more_than_its_time_outs() -> None:
    """fw-ai/cookbook#692: a step waits score_attempts * score_timeout_s at most."""
    run = settings("colocate", cells=1, capacity=8, groups=2, size=4, steps=24)
    hung = changed(run, faults={"score_hang_rate": 0.25}, training={"score_timeout_s": 7.0, "score_attempts": 3})
    waited = step_times(hung) - step_times(run)
    assert (waited <= 3 * 7.0 + 1e-9).all()
    assert waited.max() > 2 * 7.0
    entries = simulate(hung, program(LENGTHS, decode=True), hardware())
    ended = {entry.execution: entry.time_s for entry in entries if isinstance(entry, ExecutionFinished)}
    for entry in entries:
        if isinstance(entry, (ScoreExecution, ExecutionScored)):
            assert entry.time_s <= ended[entry.execution] + 3 * 7.0 + 1e-9
    assert replay(entries, Run(hung, program(LENGTHS, decode=True), hardware()).controller()) == []


def test_what_was_never_scored_is_lost_for_that_and_not_for_how_it_ended() -> None:
    run = settings("colocate", cells=1, capacity=8, groups=2, size=4, steps=6)
    run = changed(run, faults={"score_hang_rate": 0.3}, training={"score_timeout_s": 7.0, "score_attempts": 1})
    losses = record_run(simulate(run, program(LENGTHS, decode=True), hardware())).losses
    assert losses.filter(unit="execution")["reason"].unique().to_list() == ["score_failed"]


def test_a_long_simulation_keeps_nothing_of_groups_that_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Executions that never got a score were kept to the end of the run."""
    run = settings("colocate", cells=1, capacity=8, groups=2, size=4, steps=24)
    run = changed(run, faults={"score_hang_rate": 0.3}, training={"score_timeout_s": 7.0, "score_attempts": 1})
    made: list[Rollouts] = []
    monkeypatch.setattr(sim_cluster, "Rollouts", lambda *parts: made.append(Rollouts(*parts)) or made[0])
    simulate(run, program(LENGTHS, decode=True), hardware())
    assert len(made[0]._rollouts) <= 2 * 2 * 4, "of the groups in flight"


def test_verifiers_that_hang_need_a_time_out() -> None:
    run = settings("colocate", cells=1, capacity=8, groups=2, size=4, steps=1)
    with pytest.raises(ValueError, match=r"faults.score_hang_rate: .*set training.score_timeout_s"):
        changed(run, faults={"score_hang_rate": 0.25})


@pytest.mark.parametrize("redundancy", [1, 3])
def test_spare_members_shorten_every_step_at_common_random_numbers(redundancy: int) -> None:
    """The N-th end of N + k is never after the last of the same N."""
    run = settings("colocate", cells=1, capacity=32, groups=2, size=4, steps=24)
    spared = step_times(changed(run, groups={"redundancy": redundancy}))
    assert (spared <= step_times(run) + 1e-9).all()
    assert spared.sum() < step_times(run).sum()


@pytest.mark.parametrize("policy", sorted(POLICIES))
@pytest.mark.parametrize(
    "groups",
    [
        {"redundancy": 2},
        {"on_loss": "top_up"},
        {"on_loss": "wait", "max_replacements": 3},
        {"redundancy": 1, "on_loss": "top_up", "cancel_equal_after": 3},
    ],
    ids=["redundancy", "top up", "wait", "all"],
)
def test_runs_whose_groups_lose_members_make_all_their_steps(policy: str, groups: dict[str, Any]) -> None:
    run = settings(policy, cells=3, capacity=10, groups=3, size=4, steps=12, phi=0.5, mu=2)
    run = changed(run, groups=groups, limits={"overall_timeout_s": 24.0}, training={"score_timeout_s": 5.0})
    run = changed(run, faults={"score_hang_rate": 0.1, "score_failure_rate": 0.2})
    workload = program(LENGTHS, decode=True, path_tokens=60)
    workload.reward[:] = np.arange(workload.executions) % 3 == 0
    entries = simulate(run, workload, hardware(update_s=1.0, switch_s=1.0, train_tokens_per_s=100.0))
    assert [entry.version for entry in entries if isinstance(entry, UpdateApplied)] == list(range(1, 13))
    assert not record_run(entries).problems
    kinds = Counter(type(entry) for entry in entries)
    assert kinds[AddExecutions] > 0 or "on_loss" not in groups
    assert kinds[CancelExecution] > 0 or "redundancy" not in groups
    again = Run(run, workload, hardware()).controller()
    assert replay(entries, again) == []
    sizes = {entry.group: len(entry.executions) for entry in entries if isinstance(entry, DispatchGroup)}
    assert set(sizes.values()) == {4 + groups.get("redundancy", 0)}


@pytest.mark.parametrize("policy", sorted(POLICIES))
@pytest.mark.parametrize(
    "buffer",
    [
        {"groups_per_task": 1},
        {"max_staleness": 2, "on_stale": "wait"},
        {"max_staleness": 1},
        {"older_share": 0.34, "max_uses": 2, "capacity_groups": 1_000},
        {"capacity_groups": 3, "evict": "newest"},
    ],
    ids=", ".join,
)
def test_no_policy_stands_still_whatever_the_buffer_holds_back(policy: str, buffer: dict[str, Any]) -> None:
    """The cells that train leave it to nobody to serve what a step must wait for."""
    run = settings(policy, cells=2, capacity=6, groups=3, size=2, steps=20, phi=0.5, mu=2)
    run = changed(run, buffer=buffer, workload={"order": "shuffled"})
    lengths = [[1.0 + 40.0 * (group == member), 2.0 + group] for group in range(4) for member in range(1)]
    entries = simulate(run, program(lengths, decode=True, path_tokens=10), hardware(update_s=1.0, switch_s=0.5))
    assert [entry.version for entry in entries if isinstance(entry, UpdateApplied)] == list(range(1, 21))
    taken = [entry.step - entry.version for entry in entries if isinstance(entry, OfferMicroSteps)]
    assert max(taken) <= buffer.get("max_staleness", 99)
    if buffer.get("on_stale") == "wait":
        assert not any(isinstance(entry, DropGroup) for entry in entries)
    assert not record_run(entries).problems


def test_tool_calls_are_reported_for_every_execution_that_ended() -> None:
    run = settings("colocate", cells=1, capacity=8, groups=2, size=4, steps=2)
    entries = simulate(run, program(LENGTHS, decode=True), hardware())
    assert {entry.tool_calls for entry in entries if isinstance(entry, ExecutionFinished)} == {0}  # one call each
    assert any('"tool_calls":0' in to_line(entry) for entry in entries)


def test_a_cap_of_groups_a_task_that_cannot_fill_a_step_is_refused() -> None:
    run = changed(settings("colocate", cells=1, capacity=8, groups=5, size=2, steps=2), buffer={"groups_per_task": 1})
    with pytest.raises(InputError, match="1 of each of 4 tasks cannot fill a step of 5"):
        simulate(run, program([[1.0, 2.0]] * 4), hardware())
