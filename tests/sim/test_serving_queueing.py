"""The serving model against queueing theory: cases 4 to 6 of the simulator's exact cases.

Time is counted in iterations so short that rounding a service to whole iterations and waiting for a boundary cost a
fraction of the standard error. Each case is estimated from independent replications with a fixed seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from gyre.sim.serving import EngineSpec, ServingModel
from gyre.workload.program import Program

STEP_S = 1e-3
Sampler = Callable[[np.random.Generator, int], npt.NDArray[np.float64]]


def _engine(*, max_running: int, shared: bool) -> EngineSpec:
    """An iteration takes STEP_S, or STEP_S a sequence if `shared`; prefill takes next to nothing."""
    return EngineSpec(
        step_base_s=0.0 if shared else STEP_S,
        step_expert_s=0.0,
        expert_share=0.0,
        step_sequence_s=STEP_S if shared else 0.0,
        step_context_s=0.0,
        prefill_base_s=1e-12,
        prefill_token_s=0.0,
        prefill_attention_s=0.0,
        kv_tokens=10**12,
        kv_sequence_tokens=0,
        max_running=max_running,
        max_prefill_tokens=10**12,
        migration_s_per_token=math.inf,
    )


def _tokens(service_s: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Output lengths: one token at the end of prefill, then one an iteration."""
    return 1 + np.maximum(np.rint(service_s / STEP_S).astype(np.int64), 1)


def _chains(outputs: npt.NDArray[np.int64], waits_s: npt.NDArray[np.float64]) -> Program:
    """Executions whose calls follow one another; both arguments are (executions, calls)."""
    executions, calls = outputs.shape
    index = np.tile(np.arange(calls, dtype=np.int32), executions)
    has_next = index < calls - 1
    none = np.zeros(index.size, np.int64)
    return Program(
        execution_ids=tuple(str(execution) for execution in range(executions)),
        group=np.zeros(executions, np.int32),
        group_ids=("queue",),
        call_start=np.arange(executions + 1) * calls,
        thread_count=np.ones(executions, np.int32),
        setup_s=np.zeros(executions),
        scoring_s=np.zeros(executions),
        outcome=np.zeros(executions, np.int8),
        reward=np.zeros(executions),
        thread=none.astype(np.int32),
        role=none.astype(np.int8),
        input_tokens=none + 1,
        output_tokens=outputs.ravel(),
        prefix_call=(none - 1).astype(np.int32),
        prefix_tokens=none,
        wait_s=waits_s.ravel(),
        dependencies=(index > 0).astype(np.int32),
        successor_start=np.concatenate([[0], np.cumsum(has_next)]),
        successor=index[has_next] + 1,
        path_start=np.zeros(executions + 1, np.int64),
        path_tokens=np.zeros(0, np.int64),
    )


def _single_calls(
    engine: EngineSpec, arrivals_s: npt.NDArray[np.float64], outputs: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """Time in the system of executions of one call each that arrive when their set-up ends."""
    program = _chains(outputs[:, None], np.zeros((len(outputs), 1)))
    model = ServingModel(program, [engine], max_executions=len(outputs))
    model.open(0)
    for index, arrival_s in enumerate(arrivals_s.tolist()):
        model.start(index, index, setup_s=arrival_s, harness_deadline_s=math.inf, overall_deadline_s=math.inf)
    ends_s = np.empty(len(outputs))
    while (ended := model.advance(math.inf)) is not None:
        ends_s[ended.execution] = ended.time_s
    return ends_s - arrivals_s


def _open_system(
    engine: EngineSpec, rate: float, sampler: Sampler, seed: int, customers: int, *, queue_only: bool = False
) -> float:
    """Mean time in the system (or in its queue) of the later nine tenths of Poisson arrivals."""
    rng = np.random.default_rng(seed)
    arrivals_s = np.cumsum(rng.exponential(1 / rate, customers))
    outputs = _tokens(sampler(rng, customers))
    times_s = _single_calls(engine, arrivals_s, outputs)
    if queue_only:
        times_s -= (outputs - 1) * STEP_S
    return float(times_s[customers // 10 :].mean())


def _assert_mean(estimates: list[float], exact: float, *, precision: float) -> None:
    error = np.std(estimates, ddof=1) / math.sqrt(len(estimates))
    assert error < precision * exact
    assert abs(np.mean(estimates) - exact) < 4 * error


def _exponential(rng: np.random.Generator, size: int) -> npt.NDArray[np.float64]:
    return rng.exponential(1.0, size)


def _deterministic(_rng: np.random.Generator, size: int) -> npt.NDArray[np.float64]:
    return np.ones(size)


def _uniform(rng: np.random.Generator, size: int) -> npt.NDArray[np.float64]:
    return rng.uniform(0.0, 2.0, size)


def _two_point(rng: np.random.Generator, size: int) -> npt.NDArray[np.float64]:
    """Nine tenths are short, one tenth takes 7.75: mean 1, squared coefficient of variation 5.1."""
    return np.where(rng.random(size) < 0.9, 0.25, 7.75)


def test_four_servers_make_customers_wait_27_53rds() -> None:
    engine = _engine(max_running=4, shared=False)
    waits = [_open_system(engine, 3.0, _exponential, seed, 12_000, queue_only=True) for seed in range(20)]
    _assert_mean(waits, 27 / 53, precision=0.03)


@pytest.mark.parametrize("sampler", [_deterministic, _uniform, _exponential, _two_point])
def test_processor_sharing_does_not_see_the_service_law(sampler: Sampler) -> None:
    engine = _engine(max_running=10**6, shared=True)
    times = [_open_system(engine, 0.7, sampler, seed, 6_000) for seed in range(20)]
    _assert_mean(times, 10 / 3, precision=0.03)


def test_closed_network_of_calls_and_tool_waits() -> None:
    engine = _engine(max_running=8, shared=True)
    calls = 2_000
    rates = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        program = _chains(_tokens(rng.exponential(2.0, (8, calls))), rng.exponential(10.0, (8, calls)))
        rates.append(_throughput(ServingModel(program, [engine]), calls))
    _assert_mean(rates, 518592 / 1115309, precision=0.01)


def _throughput(model: ServingModel, calls: int) -> float:
    """Calls a second over the first three quarters of a run of 8 executions, while all of them still have calls."""
    model.open(0)
    for execution in range(8):
        model.start(execution, execution, setup_s=0.0, harness_deadline_s=math.inf, overall_deadline_s=math.inf)
    model.advance(1_000.0)
    before = model.meters(0).prefilled_tokens
    until_s = 0.75 * 8 * calls / 0.465
    assert model.advance(until_s) is None
    return (model.meters(0).prefilled_tokens - before) / (until_s - 1_000.0)
