"""Calibration against hardware that is known: runs simulated iteration by iteration, recorded as a proxy records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded_runs import record_run, small_workload
from toy_runs import hardware

from gyre.config import RunSettings
from gyre.events import CellChanged, CellState, MicroStepClaimed, TransferDone, UpdateApplied
from gyre.journal import Entry
from gyre.sim.calibration import Calibration, calibrate, predicted_again, write_profile
from gyre.sim.calibration.engine_fit import EngineTimes
from gyre.sim.calibration.measured import Measured
from gyre.sim.calibration.robust import Estimate, fit, typical
from gyre.sim.hardware_profile import HardwareProfile, load_hardware
from gyre.workload.importers import import_trace

TRUTH: dict[str, dict[str, float]] = {
    "decode": {"a_ms": 20.0, "b_ms": 3.0, "c_ms": 0.004},
    "prefill": {"p0_ms": 15.0, "p1_ms": 0.5, "p2_ms": 0.0005},
    "switch": {"to_training_s": 0.7, "to_serving_s": 0.4},
    "publish": {"fixed_s": 0.3, "pull_s": 0.2},
    "training": {
        "tokens_per_s_per_gpu": 2000.0,
        "micro_step_overhead_s": 0.1,
        "update_s": 0.5,
        "offer_s": 0.05,
    },
}


def true_hardware() -> HardwareProfile:
    """The hardware that calibration must find."""
    return HardwareProfile.model_validate(hardware().model_dump(exclude_none=True) | TRUTH)


def run_settings(policy: str, *, steps: int = 6, **keys: Any) -> RunSettings:
    """A run of three cells, two groups of four a step."""
    return RunSettings.model_validate(
        {
            "policy": policy,
            "policy_settings": {"phi": 1, "mu": 1, **keys},
            "workload": {"trace": "toy", "order": "trace"},
            "cluster": {"hardware": "toy", "cells": 3, "capacity": 8, "rebalance": 0},
            "training": {"steps": steps, "groups_per_step": 2, "group_size": 4, "micro_step_tokens": 1024},
        }
    )


def found(calibration: Calibration) -> dict[str, dict[str, float]]:
    """The figures found, by section and key."""
    values: dict[str, dict[str, float]] = {}
    for figure in calibration.figures:
        values.setdefault(figure.section, {})[figure.key] = figure.value
    return values


def test_known_hardware_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines to 3 %, for what an iteration's records leave open; all that the journal times, exactly."""
    record_run(tmp_path / "run", run_settings("elastic"), small_workload(16, 4), true_hardware(), monkeypatch)
    calibration = calibrate(tmp_path / "run")
    values = found(calibration)
    for section in ("decode", "prefill"):
        assert values[section] == pytest.approx(TRUTH[section], rel=0.03)
    for section in ("switch", "publish"):
        assert values[section] == pytest.approx(TRUTH[section], rel=1e-6)
    assert values["training"] == pytest.approx(TRUTH["training"] | {"checkpoint_s": 0.0}, rel=1e-6)
    assert calibration.notes == ()


@pytest.mark.parametrize(
    ("policy", "wall_error", "step_error"), [("async", 0.01, 0.01), ("colocate", 0.02, 0.02), ("elastic", 0.06, 0.3)]
)
def test_a_calibrated_run_is_simulated_as_it_was(
    policy: str, wall_error: float, step_error: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousandth of a second can decide which cell elastic moves and when: its steps differ more than the rest."""
    record_run(tmp_path / "run", run_settings(policy, steps=10), small_workload(24, 4), true_hardware(), monkeypatch)
    wall, step, tokens, serving, training = predicted_again(tmp_path / "run", calibrate(tmp_path / "run"))
    assert wall.simulated == pytest.approx(wall.measured, rel=wall_error)
    assert step.error < step_error
    assert tokens.simulated == pytest.approx(tokens.measured, rel=0.05)
    assert serving.simulated == pytest.approx(serving.measured, rel=0.2)  # a reply that moves counts till it goes on
    assert training.simulated == pytest.approx(training.measured, rel=0.05)


def test_a_run_of_async_tells_what_the_other_policies_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups that async did not finish are not in its records, nor is a move back to serving."""
    from gyre.sim.calibration import same_settings, simulated
    from gyre.workload.recorded_run.folder import RunFolder

    trace = small_workload(20, 4)
    record_run(tmp_path / "async", run_settings("async", steps=8), trace, true_hardware(), monkeypatch)
    profile = calibrate(tmp_path / "async").profile
    for policy in ("elastic", "colocate"):
        path = tmp_path / policy
        record_run(path, run_settings(policy, steps=8), trace, true_hardware(), monkeypatch)
        with RunFolder(path) as run:
            measured_s = run.history.wall_s
            predicted, _ = simulated(same_settings(run.history, tmp_path / "async"), profile)
        assert predicted.wall_s == pytest.approx(measured_s, rel=0.05)


def test_noise_and_stalls_bend_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every iteration and prefill is 10 % off, one in a hundred takes six times as long: 5 % of all time is stalls."""
    draw = np.random.default_rng(7)

    def noise(seconds: float) -> float:
        return seconds * (6.0 if draw.random() < 1 / 100 else float(draw.lognormal(0.0, 0.1)))

    truth = true_hardware()
    record_run(tmp_path / "run", run_settings("async"), small_workload(16, 4), truth, monkeypatch, noise=noise)
    calibration = calibrate(tmp_path / "run")
    profile = calibration.profile
    for sequences in (2, 4, 8):
        expected_s = truth.decode_step_s(sequences, sequences * 300)
        assert profile.decode_step_s(sequences, sequences * 300) == pytest.approx(expected_s, rel=0.1)
    assert profile.prefill_s(100, 0) == pytest.approx(truth.prefill_s(100, 0), rel=0.1)
    spread = {(figure.section, figure.key): figure.spread for figure in calibration.figures}
    for section, key in (("decode", "a_ms"), ("prefill", "p1_ms")):
        error = spread[section, key]
        assert error is not None
        assert abs(found(calibration)[section][key] - TRUTH[section][key]) < 5 * error
        assert error > 0


def test_the_profile_is_a_hardware_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written is what was found, and a run's folder stands for it too."""
    record_run(tmp_path / "run", run_settings("async", steps=3), small_workload(10, 4), true_hardware(), monkeypatch)
    calibration = calibrate(tmp_path / "run")
    write_profile(calibration.profile, tmp_path / "mine.toml")
    assert load_hardware(tmp_path / "mine.toml") == calibration.profile
    assert load_hardware(str(tmp_path / "run")) == calibration.profile


def test_a_base_gives_what_a_run_does_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits of KV memory and batch are the base's, times are the run's."""
    record_run(tmp_path / "run", run_settings("async", steps=3), small_workload(10, 4), true_hardware(), monkeypatch)
    base = load_hardware("qwen3-8b-tp1")
    profile = calibrate(tmp_path / "run", base).profile
    assert profile.engine.max_running == base.engine.max_running
    assert profile.migration == base.migration
    assert profile.decode.a_ms == pytest.approx(20.0, rel=0.05)
    assert profile.publish_s == pytest.approx(0.3)
    assert profile.cell.gpus == 1


def test_steps_of_moves_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They explain the times of switches and are no figures of the profile by themselves."""

    def with_steps(entries: list[Entry]) -> list[Entry]:
        changed: list[Entry] = []
        for entry in entries:
            changed.append(entry)
            if isinstance(entry, CellChanged) and entry.state is CellState.TRAINING:
                changed += [
                    TransferDone(entry.time_s, entry.cell, step, s) for step, s in (("drain", 0.1), ("load", 0.6))
                ]
        return changed

    arguments = (tmp_path / "run", run_settings("async", steps=3), small_workload(10, 4), true_hardware(), monkeypatch)
    record_run(*arguments, change=with_steps)
    calibration = calibrate(tmp_path / "run")
    assert found(calibration)["details"] == pytest.approx({"drain": 0.1, "load": 0.6})
    assert found(calibration)["switch"]["to_training_s"] == pytest.approx(0.7)


def test_moves_that_a_run_hardly_shows_are_those_that_were_rehearsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Async moves one cell, once, while all harnesses start; the steps of three rehearsed moves are known besides."""
    steps = (("drain", 0.1), ("release", 0.3), ("load", 0.2), ("offload", 0.5), ("restore", 0.2), ("admit", 0.2))

    def with_rehearsals(entries: list[Entry]) -> list[Entry]:
        told = [TransferDone(0.0, cell, step, s, rehearsed=True) for step, s in steps for cell in (0, 1, 2)]
        return [entries[0], *told, *entries[1:]]

    arguments = (tmp_path / "run", run_settings("async", steps=3), small_workload(10, 4), true_hardware(), monkeypatch)
    record_run(*arguments, change=with_rehearsals)
    calibration = calibrate(tmp_path / "run")
    assert found(calibration)["switch"] == pytest.approx({"to_training_s": (3 * 0.6 + 0.7) / 4, "to_serving_s": 0.9})
    assert "details" not in found(calibration)
    assert "moves: 1, and 3 rehearsed before the run began" in {figure.source for figure in calibration.figures}


def test_prompts_too_few_to_measure_leave_a_profile_that_can_be_simulated() -> None:
    nothing, measured = Estimate(0.0, 0.0, 3), Measured()
    measured.engines(EngineTimes(Estimate(0.01, 0.0, 3), *[nothing] * 5, replies=3, first_tokens=3, error=0.0))
    assert measured.sections["prefill"]["p0_ms"] > 0, "a simulated prefill takes time"


def test_a_run_that_goes_on_is_measured_so_far_and_said_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def so_far(entries: list[Entry]) -> list[Entry]:
        second = next(at for at, entry in enumerate(entries) if isinstance(entry, UpdateApplied) and entry.version == 2)
        return entries[: second + 1]

    arguments = (tmp_path / "run", run_settings("async", steps=3), small_workload(10, 4), true_hardware(), monkeypatch)
    record_run(*arguments, change=so_far)
    (note,) = calibrate(tmp_path / "run").notes
    assert note == "The run has not come to its end: only its first 2 steps are measured."


def test_the_core_makes_groups_ready_one_after_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an update comes the checkpoint, then each group's micro-steps: the first claim waits for both."""
    truth = true_hardware()
    training = truth.training.model_copy(update={"checkpoint_s": 2.0, "offer_s": 1.0})
    slow = truth.model_copy(update={"training": training})
    entries = record_run(tmp_path / "run", run_settings("async"), small_workload(16, 4), slow, monkeypatch)
    updates = [entry.time_s for entry in entries if isinstance(entry, UpdateApplied)]
    claims = [entry.time_s for entry in entries if isinstance(entry, MicroStepClaimed)]
    waits = [min(claim for claim in claims if claim > update) - update for update in updates[:-1]]
    assert min(waits) == pytest.approx(3.0)  # where the next step's groups were ready already
    assert all(wait > 3.0 - 1e-9 for wait in waits)


def test_evaluators_have_a_queue_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What evaluations took is told apart from their waits, so that another policy may bring about others."""
    settings = run_settings("colocate")
    one = settings.model_copy(update={"cluster": settings.cluster.model_copy(update={"evaluators": 1})})
    arguments = (small_workload(16, 4), true_hardware(), monkeypatch)
    record_run(tmp_path / "many", settings, *arguments)
    record_run(tmp_path / "one", one, *arguments, evaluations=True)
    wall, *_ = predicted_again(tmp_path / "one", calibrate(tmp_path / "one"))
    assert wall.simulated == pytest.approx(wall.measured, rel=0.02)
    assert wall.measured > calibrate(tmp_path / "many").recorded.wall_s + 5.0  # the queue is no small matter
    trace, _ = import_trace(tmp_path / "one")
    sent = small_workload(16, 4).executions
    both = trace.executions.join(sent, on="execution_id", suffix="_sent")
    assert len(both) > 30
    assert both["scoring_s"].to_list() == pytest.approx(both["scoring_s_sent"].to_list())


@given(
    st.lists(st.floats(0.01, 10), min_size=1, max_size=4),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=30, deadline=None)
def test_exact_data_are_fitted_exactly(truth: list[float], seed: int) -> None:
    draw = np.random.default_rng(seed)
    rows = draw.uniform(0.1, 10, (60, len(truth)))
    target = rows @ np.array(truth)
    estimates = fit(rows, target)
    assert [estimate.value for estimate in estimates] == pytest.approx(truth, rel=1e-6)


def test_a_mean_is_a_mean_and_a_wild_value_counts_for_five_usual_ones() -> None:
    draw = np.random.default_rng(1)
    values = draw.lognormal(1.0, 0.5, 200)  # skewed, as times are
    estimate = typical(values.tolist())
    assert estimate is not None
    assert estimate.value == pytest.approx(float(values.mean()), rel=0.02)
    assert estimate.samples == 200
    usual = typical([*([5.0] * 199), 1e6])
    assert usual is not None
    assert usual.value == pytest.approx((199 * 5.0 + 25.0) / 200)


def test_standard_errors_are_those_of_least_squares() -> None:
    """With errors of one size, the spread of a mean is s over the root of n."""
    draw = np.random.default_rng(3)
    values = draw.uniform(9.9, 10.1, 400)
    estimate = typical(values.tolist())
    assert estimate is not None
    assert estimate.spread == pytest.approx(float(values.std()) / 20, rel=0.1)
