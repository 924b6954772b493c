"""The simulated cluster: determinism, failures, and what a run conserves."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import numpy as np
import pytest
from toy_runs import hardware, program, settings, simulate, update_times

from gyre.cluster import CellState
from gyre.commands import OfferMicroSteps, ScoreExecution
from gyre.config import RunSettings
from gyre.controller import Controller
from gyre.events import (
    CellChanged,
    CellFailed,
    CellJoined,
    ExecutionFinished,
    ExecutionScored,
    MicroStepClaimed,
    MicroStepDone,
    UpdateApplied,
)
from gyre.journal import Entry, to_line
from gyre.policies import POLICIES
from gyre.replay import replay
from gyre.sim.run import Run

LENGTHS = [[float(5 + (7 * group + 11 * member) % 23) for member in range(4)] for group in range(24)]


def faulty(policy: str, **changes: Any) -> RunSettings:
    run = settings(policy, cells=4, capacity=10, groups=4, size=4, steps=12, phi=0.5, mu=2, **changes)
    faults = run.faults.model_copy(
        update={"cell_mean_time_between_failures_s": 150.0, "cell_repair_s": 20.0, "score_failure_rate": 0.3}
    )
    training = run.training.model_copy(update={"micro_step_tokens": 50})
    return run.model_copy(update={"faults": faults, "seed": 3, "training": training})


ON = hardware(update_s=1.0, switch_s=2.0, train_tokens_per_s=100.0)


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_same_seed_same_bytes(policy: str) -> None:
    workload = program(LENGTHS, decode=True, path_tokens=60)
    first, second = (simulate(faulty(policy), workload, ON) for _ in range(2))
    assert [to_line(entry) for entry in first] == [to_line(entry) for entry in second]


@pytest.mark.parametrize("policy", sorted(POLICIES))
@pytest.mark.parametrize("seed", range(6))
def test_failing_cells_lose_nothing_and_count_nothing_twice(policy: str, seed: int) -> None:
    run = faulty(policy).model_copy(update={"seed": seed})
    entries = simulate(run, program(LENGTHS, decode=True, path_tokens=60), ON)
    assert any(isinstance(entry, CellFailed) for entry in entries)
    assert [entry.version for entry in entries if isinstance(entry, UpdateApplied)] == list(range(1, 13))
    finished = Counter(entry.execution for entry in entries if isinstance(entry, ExecutionFinished))
    assert set(finished.values()) == {1}
    steps_of: dict[int, set[int]] = {}
    for entry in entries:
        if isinstance(entry, OfferMicroSteps):
            steps_of.setdefault(entry.group, set()).add(entry.step)
    assert all(len(steps) == 1 for steps in steps_of.values())  # offered again only to the step that took it
    settled = controller_after(run, entries)
    assert settled.version == 12


def controller_after(run: RunSettings, entries: list[Entry]) -> Controller:
    """Rebuild the controller from the journal, which must command the same again."""
    controller = Run(run, program(LENGTHS, decode=True, path_tokens=60), ON).controller()
    assert replay(entries, controller) == []
    return controller


def test_a_failed_satellite_loses_only_what_it_had_not_returned() -> None:
    run = faulty("colocate")
    entries = simulate(run, program(LENGTHS, decode=True, path_tokens=60), ON)
    core_failures = [entry.time_s for entry in entries if isinstance(entry, CellFailed) and entry.cell == 0]
    done = Counter((entry.step, entry.micro_step) for entry in entries if isinstance(entry, MicroStepDone))
    again = [key for key, times in done.items() if times > 1]
    assert not again or core_failures  # only the core's loss makes finished work be done again
    assert any(isinstance(entry, CellJoined) for entry in entries)


def test_scores_that_fail_are_tried_again() -> None:
    entries = simulate(faulty("elastic"), program(LENGTHS, decode=True, path_tokens=60), ON)
    attempts = Counter(entry.attempt for entry in entries if isinstance(entry, ScoreExecution))
    failed = [entry for entry in entries if isinstance(entry, ExecutionScored) and not entry.valid]
    assert attempts[0] > attempts[1] > attempts[2] > 0
    assert attempts[1] + attempts[2] <= len(failed)


def test_time_outs_end_executions_at_their_limit() -> None:
    run = settings("colocate", cells=1, capacity=8, groups=1, size=4, steps=1)
    limits = run.limits.model_copy(update={"harness_timeout_s": 6.0})
    entries = simulate(run.model_copy(update={"limits": limits}), program([[3, 5, 9, 40]], decode=True), hardware())
    ends = {entry.execution: (entry.time_s, entry.outcome) for entry in entries if isinstance(entry, ExecutionFinished)}
    assert [outcome for _, outcome in ends.values()] == ["completed", "completed", "harness_timeout", "harness_timeout"]
    assert ends[2][0] == ends[3][0] == pytest.approx(6.0, rel=1e-9)
    assert update_times(entries) == pytest.approx([6.0], rel=1e-9)


def test_switches_take_their_time_in_both_directions() -> None:
    run = settings("colocate", cells=2, capacity=4, groups=1, size=4, steps=2)
    entries = simulate(run, program([[3, 5, 9, 4]], decode=True), hardware(update_s=6.0, switch_s=2.0))
    assert update_times(entries) == pytest.approx([9 + 2 + 6, 2 * (9 + 2 + 6) + 2], rel=1e-9)
    states = [entry.state for entry in entries if isinstance(entry, CellChanged) and entry.cell == 1]
    assert states[:4] == [CellState.TO_TRAINING, CellState.TRAINING, CellState.TO_SERVING, CellState.SERVING]


def test_micro_steps_of_uneven_length_are_shared_by_whoever_is_free() -> None:
    """Paths of 300, 100, 100, 100 tokens at 100 tokens/s on two cells: one takes the long one, the other three."""
    workload = program([[1, 1, 1, 1]], decode=True)
    object.__setattr__(workload, "path_tokens", workload.path_tokens * [300, 100, 100, 100])
    run = settings("colocate", cells=2, capacity=4, groups=1, size=4, steps=1)
    run = run.model_copy(update={"training": run.training.model_copy(update={"micro_step_tokens": 1})})
    entries = simulate(run, workload, hardware(train_tokens_per_s=100.0))
    assert update_times(entries) == pytest.approx([1 + 3], rel=1e-9)
    claims = Counter(entry.cell for entry in entries if isinstance(entry, MicroStepClaimed))
    assert sorted(claims.values()) == [1, 3]


def test_evaluations_wait_for_an_evaluator() -> None:
    """Eight executions end at once and take 3 s to judge: by all at once, by two at a time, one by one."""
    workload = dataclasses.replace(program([[5.0] * 8]), scoring_s=np.full(8, 3.0))
    for evaluators, rounds in ((None, 1), (2, 4), (1, 8)):
        one = settings("colocate", cells=1, capacity=8, groups=1, size=8, steps=1)
        cluster = one.cluster.model_copy(update={"evaluators": evaluators})
        (updated_s,) = update_times(simulate(one.model_copy(update={"cluster": cluster}), workload, hardware()))
        assert updated_s == pytest.approx(5.0 + 3.0 * rounds)
