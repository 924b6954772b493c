"""The clairvoyant bound against token-by-token sums, the serving model, list schedules and its own logic."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_programs import SmallCall, SmallExecution, program_of

from gyre.outcome import Outcome
from gyre.sim.bounds import Term, lower_bound, serving_work_gpu_s, unloaded_seconds
from gyre.sim.closed_forms import list_schedule
from gyre.sim.hardware_profile import HardwareProfile, hardware_names, load_hardware
from gyre.sim.serving import ServingModel
from gyre.sim.training import attended_pairs, micro_step_s, training_work_gpu_s
from gyre.workload.program import Program

HARDWARE = load_hardware("qwen3.5-122b-tp8")


def small(hardware: HardwareProfile, *, kv_tokens: int, max_running: int, max_prefill_tokens: int) -> HardwareProfile:
    """The profile with an engine so small that its limits bind."""
    room = hardware.sequence_kv_bytes(kv_tokens)
    limits = {"kv_memory_bytes": room, "max_running": max_running, "max_prefill_tokens": max_prefill_tokens}
    return hardware.model_copy(update={"engine": hardware.engine.model_copy(update=limits)})


def serve(program: Program, hardware: HardwareProfile, engines: int) -> tuple[dict[int, float], float]:
    """Ends of all executions when they start together, and the engines' busy seconds, from the serving model."""
    model = ServingModel(program, [hardware.engine_spec()] * engines)
    for engine in range(engines):
        model.open(engine)
    for execution in range(program.executions):
        setup_s = float(program.setup_s[execution])
        model.start(execution, execution, setup_s=setup_s, harness_deadline_s=math.inf, overall_deadline_s=math.inf)
    ends: dict[int, float] = {}
    while (ended := model.advance(math.inf)) is not None:
        ends[ended.execution] = ended.time_s
    return ends, sum(model.meters(engine).busy_s for engine in range(engines))


@st.composite
def executions(draw: st.DrawFn) -> SmallExecution:
    """A chain of turns with growing context, some of which a sub-agent runs beside."""
    calls: list[SmallCall] = []
    previous, context, threads = -1, 0, 1
    for _ in range(draw(st.integers(1, 4))):
        kept = draw(st.integers(0, context))
        call = SmallCall(
            input_tokens=kept + draw(st.integers(1, 300)),
            output_tokens=draw(st.integers(1, 40)),
            after=() if previous < 0 else (previous,),
            wait_s=draw(st.floats(0, 2)),
            prefix_call=previous,
            prefix_tokens=kept if previous >= 0 else 0,
        )
        calls.append(call)
        previous, context = len(calls) - 1, call.input_tokens + call.output_tokens
        if draw(st.booleans()):
            shared = draw(st.integers(0, context))
            child = SmallCall(
                shared + draw(st.integers(1, 50)), draw(st.integers(1, 40)), (previous,), 0.1, previous, shared, threads
            )
            calls.append(child)
            threads += 1
    return SmallExecution(calls, setup_s=draw(st.floats(0, 3)))


PROGRAMS = st.lists(executions(), min_size=1, max_size=6).map(program_of)


def token_by_token(execution: SmallExecution, hardware: HardwareProfile) -> float:
    """Reference: earliest end of an execution, every token summed by itself."""
    ends: list[float] = []
    for call in execution.calls:
        new = max(call.input_tokens - call.prefix_tokens, 1)
        busy_s = hardware.prefill_s(new, call.input_tokens - new)
        busy_s += sum(hardware.decode_step_s(1, call.input_tokens + i) for i in range(1, call.output_tokens))
        released_s = max((ends[before] for before in call.after), default=execution.setup_s)
        ends.append(released_s + call.wait_s + busy_s)
    return max(ends, default=execution.setup_s)


@settings(deadline=None)
@given(drawn=st.lists(executions(), min_size=1, max_size=5), name=st.sampled_from(hardware_names()))
def test_unloaded_seconds_are_the_sum_over_tokens(drawn: list[SmallExecution], name: str) -> None:
    hardware = load_hardware(name)
    expected = [token_by_token(execution, hardware) for execution in drawn]
    assert unloaded_seconds(program_of(drawn), hardware) == pytest.approx(expected, rel=1e-12)


def test_unloaded_seconds_of_parallel_branches_and_a_join() -> None:
    calls = [
        SmallCall(100, 11),
        SmallCall(50, 301, (0,), thread=1),
        SmallCall(50, 21, (0,), thread=2),
        SmallCall(111, 1, (1, 2), wait_s=5.0, prefix_call=0, prefix_tokens=111),
    ]
    execution = SmallExecution(calls, setup_s=7.0)
    alone = unloaded_seconds(program_of([execution]), HARDWARE)
    without_short = unloaded_seconds(
        program_of([replace(execution, calls=[calls[0], calls[1], replace(calls[3], after=(1,))])]), HARDWARE
    )
    assert alone == pytest.approx(without_short, rel=1e-14)
    assert alone[0] == pytest.approx(token_by_token(execution, HARDWARE), rel=1e-14)


def test_timeout_caps_and_an_execution_without_calls_ends_with_its_setup() -> None:
    program = program_of([SmallExecution([SmallCall(10, 5, wait_s=100.0)]), SmallExecution([], setup_s=3.0)])
    assert unloaded_seconds(program, HARDWARE, timeout_s=50.0).tolist() == [50.0, 3.0]


def test_a_release_graph_that_never_ends_is_refused() -> None:
    program = program_of([SmallExecution([SmallCall(1, 1, after=(1,)), SmallCall(1, 1, after=(0,))])])
    with pytest.raises(ValueError, match="'x0'"):
        unloaded_seconds(program, HARDWARE)


@settings(deadline=None, max_examples=50)
@given(program=PROGRAMS)
def test_a_chain_alone_on_the_serving_model_takes_its_unloaded_seconds(program: Program) -> None:
    chains = [e for e in range(program.executions) if program.thread_count[e] == 1]
    unloaded = unloaded_seconds(program, HARDWARE)
    for execution in chains:
        model = ServingModel(program, [HARDWARE.engine_spec()])
        model.open(0)
        setup_s = float(program.setup_s[execution])
        model.start(0, execution, setup_s=setup_s, harness_deadline_s=math.inf, overall_deadline_s=math.inf)
        ended = model.advance(math.inf)
        assert ended is not None
        assert ended.time_s == pytest.approx(unloaded[execution], rel=1e-12)


@settings(deadline=None, max_examples=150)
@given(
    program=PROGRAMS,
    engines=st.integers(1, 3),
    limits=st.fixed_dictionaries(
        {
            "kv_tokens": st.integers(1700, 4000),
            "max_running": st.integers(1, 8),
            "max_prefill_tokens": st.integers(1, 400),
        }
    ),
    name=st.sampled_from(["qwen3.5-122b-tp8", "qwen3-8b-tp1", "deepseek-v3-tp8"]),
)
def test_nothing_the_serving_model_does_beats_the_bounds(
    program: Program, engines: int, limits: dict[str, int], name: str
) -> None:
    hardware = small(load_hardware(name), **limits)
    ends, busy_s = serve(program, hardware, engines)
    unloaded = unloaded_seconds(program, hardware)
    assert all(ends[e] >= unloaded[e] * (1 - 1e-12) for e in range(program.executions))
    work = serving_work_gpu_s(program, hardware)
    assert work.sum() <= busy_s * hardware.engine.gpus_per_engine * (1 + 1e-12)


def test_work_is_what_a_full_batch_takes() -> None:
    """Equal calls that fill the batch exactly: prefill and decode both at their best, the bound is reached."""
    hardware = small(HARDWARE, kv_tokens=10**7, max_running=8, max_prefill_tokens=800)
    program = program_of([SmallExecution([SmallCall(100, 200)]) for _ in range(8)])
    _, busy_s = serve(program, hardware, 1)
    assert serving_work_gpu_s(program, hardware).sum() == pytest.approx(busy_s * 8, rel=1e-12)


def test_work_knows_that_memory_limits_the_batch() -> None:
    """Memory for four of eight equal sequences: two half batches, nearly what the serving model takes."""
    hardware = small(load_hardware("qwen3-235b-a22b-tp8"), kv_tokens=4 * 1020, max_running=256, max_prefill_tokens=4000)
    program = program_of([SmallExecution([SmallCall(1000, 20)]) for _ in range(8)])
    _, busy_s = serve(program, hardware, 1)
    work = serving_work_gpu_s(program, hardware).sum()
    roomy = hardware.model_copy(update={"engine": hardware.engine.model_copy(update={"kv_memory_bytes": 1e12})})
    assert work > 1.5 * serving_work_gpu_s(program, roomy).sum()
    assert 0.98 * busy_s * 8 < work <= busy_s * 8


def test_work_counts_no_call_beyond_the_timeout() -> None:
    chain = [SmallCall(100, 50), SmallCall(200, 50, (0,), wait_s=100.0, prefix_call=0, prefix_tokens=150)]
    both, first = program_of([SmallExecution(chain)]), program_of([SmallExecution(chain[:1])])
    assert serving_work_gpu_s(both, HARDWARE, timeout_s=50.0) == pytest.approx(serving_work_gpu_s(first, HARDWARE))


def waiting(seconds: float, paths: tuple[int, ...] = (1000,), scoring_s: float = 0.0) -> SmallExecution:
    """An execution that takes almost only the given time, in a tool."""
    return SmallExecution([SmallCall(1, 1, wait_s=seconds)], paths=paths, scoring_s=scoring_s)


def train_s(gpus: int, *paths: int) -> float:
    """One micro-step of these paths."""
    return micro_step_s(HARDWARE, sum(paths), gpus, attended_pairs(paths))


def paths_s(program: Program, gpus: int) -> list[float]:
    """P of each one-execution group."""
    ready = unloaded_seconds(program, HARDWARE) + program.scoring_s
    return [r + train_s(gpus, 1000) + HARDWARE.training.update_s for r in ready]


def test_synchronous_bound_by_hand() -> None:
    """One step, no staleness: work over GPUs against the longest execution and the training behind it."""
    program = program_of([waiting(50.0), waiting(80.0, scoring_s=9.0)])
    bound = lower_bound(program, HARDWARE, [[[0, 1]]], 64, max_staleness=0)
    longest_s = unloaded_seconds(program, HARDWARE)[1] + 9.0
    assert bound.term is Term.CRITICAL_PATH
    assert bound.seconds == pytest.approx(longest_s + train_s(64, 1000, 1000) + 5.0, rel=1e-12)
    work = (
        serving_work_gpu_s(program, HARDWARE).sum()
        + training_work_gpu_s(HARDWARE, 2000, attended_pairs([1000, 1000]))
        + 32 * 5.0
    )
    assert bound.terms[Term.GPU_WORK] == pytest.approx(work / 64, rel=1e-12)
    assert bound.terms[Term.TRAINING] == pytest.approx(train_s(64, 1000, 1000) + 5.0, rel=1e-12)
    assert bound.fraction(2 * bound.seconds) == 0.5


@pytest.mark.parametrize("eta", [0, 1, 2, 3, 5])
def test_constant_lengths_give_the_period_of_bounded_staleness(eta: int) -> None:
    """12 steps of equal groups: (L + T) / (eta + 1) a step; in order, training also parts the last eta + 1 updates."""
    program = program_of([waiting(600.0)])
    steps = np.zeros((12, 4, 1), np.int64)
    (path_s,) = paths_s(program, 64)
    step_s = train_s(64, 1000, 1000, 1000, 1000) + HARDWARE.training.update_s
    free = lower_bound(program, HARDWARE, steps, 64, max_staleness=eta)
    assert free.seconds == pytest.approx(12 * path_s / (eta + 1), rel=1e-12)
    in_order = lower_bound(program, HARDWARE, steps, 64, max_staleness=eta, in_order=True)
    assert in_order.seconds == pytest.approx(12 * path_s / (eta + 1) + eta * step_s, rel=1e-12)
    depth = lower_bound(program, HARDWARE, steps, 64, depth_groups=4 * (eta + 1))
    assert depth.seconds == pytest.approx(12 * path_s / (eta + 1), rel=1e-12)


def test_training_or_work_binds_where_lengths_are_short() -> None:
    heavy = program_of([waiting(0.0, paths=(50_000_000,))])
    few = lower_bound(heavy, HARDWARE, np.zeros((3, 1, 1), np.int64), 32, max_staleness=8)
    assert few.term is Term.TRAINING
    assert few.seconds == pytest.approx(3 * (train_s(32, 50_000_000) + 5.0), rel=1e-12)
    serving = program_of([SmallExecution([SmallCall(2000, 2000)])])
    assert lower_bound(serving, HARDWARE, np.zeros((3, 1, 3000), np.int64), 8, max_staleness=8).term is Term.GPU_WORK


@pytest.mark.parametrize("outcome", [Outcome.OVERALL_TIMEOUT, Outcome.CANCELLED, Outcome.ENV_SETUP_FAILED])
def test_dropped_executions_neither_train_nor_wait_for_a_score(outcome: Outcome) -> None:
    dropped = replace(waiting(5.0, scoring_s=1e6), outcome=list(Outcome).index(outcome))
    program = program_of([waiting(5.0), dropped])
    assert lower_bound(program, HARDWARE, [[[0, 1]]], 32).terms[Term.TRAINING] == pytest.approx(train_s(32, 1000) + 5.0)
    assert lower_bound(program, HARDWARE, [[[0, 1]]], 32).seconds < 1e3


def test_an_execution_whose_image_never_came_serves_nothing() -> None:
    failed = replace(waiting(500.0), setup_s=20.0, outcome=list(Outcome).index(Outcome.ENV_SETUP_FAILED))
    bound = lower_bound(program_of([failed]), HARDWARE, [[[0]]], 32)
    assert bound.seconds == pytest.approx(20.0 + 5.0, rel=1e-12)
    assert bound.terms[Term.GPU_WORK] == pytest.approx(5.0, rel=1e-12)


def test_timeouts_cut_paths_and_decide_what_is_trained() -> None:
    """Half of the tokens are sampled before 50 s: the harness's time-out trains them, the overall one drops all."""
    chain = [SmallCall(100, 50), SmallCall(200, 50, (0,), wait_s=100.0, prefix_call=0, prefix_tokens=150)]
    program = program_of([SmallExecution(chain, scoring_s=7.0, paths=(1000,))])
    harness = lower_bound(program, HARDWARE, [[[0]]], 32, harness_timeout_s=50.0)
    overall = lower_bound(program, HARDWARE, [[[0]]], 32, overall_timeout_s=50.0)
    assert harness.seconds == pytest.approx(57.0 + train_s(32, 500) + 5.0, rel=1e-12)
    assert overall.seconds == pytest.approx(50.0 + 5.0, rel=1e-12)


LENGTHS = st.lists(st.floats(0, 500), min_size=6, max_size=6)


@settings(deadline=None, max_examples=40)
@given(lengths=LENGTHS, eta=st.integers(0, 3))
def test_no_assignment_of_groups_to_steps_beats_the_bound(lengths: list[float], eta: int) -> None:
    """Every way to put six groups into three steps of two, each run as soon as eta allows with infinitely many GPUs."""
    program = program_of([waiting(seconds) for seconds in lengths])
    path_s = paths_s(program, 10**6)
    bound = lower_bound(program, HARDWARE, np.arange(6).reshape(3, 2, 1), 10**6, max_staleness=eta)
    least_s = math.inf
    for order in itertools.permutations(range(6)):
        ends = [0.0]
        for step in range(1, 4):
            longest_s = max(path_s[order[2 * step - 2]], path_s[order[2 * step - 1]])
            ends.append(max(ends[-1], ends[max(step - 1 - eta, 0)] + longest_s))
        least_s = min(least_s, ends[-1])
    assert bound.terms[Term.CRITICAL_PATH] <= least_s * (1 + 1e-12)
    if eta == 0:
        assert bound.terms[Term.CRITICAL_PATH] == pytest.approx(least_s, rel=1e-12)


@settings(deadline=None)
@given(lengths=LENGTHS, depth=st.integers(1, 6))
def test_no_list_schedule_over_depth_places_beats_the_bound(lengths: list[float], depth: int) -> None:
    program = program_of([waiting(seconds) for seconds in lengths])
    bound = lower_bound(program, HARDWARE, np.arange(6).reshape(3, 2, 1), 64, depth_groups=depth)
    assert bound.terms[Term.CRITICAL_PATH] <= list_schedule(paths_s(program, 64), depth) * (1 + 1e-12)


@settings(deadline=None)
@given(lengths=LENGTHS, eta=st.integers(0, 4), gpus=st.integers(1, 512))
def test_more_gpus_more_staleness_or_a_free_order_never_raise_the_bound(
    lengths: list[float], eta: int, gpus: int
) -> None:
    program = program_of([waiting(seconds) for seconds in lengths])
    steps = np.arange(6).reshape(3, 2, 1)

    def bound_s(gpus: int, eta: int, in_order: bool) -> float:
        return lower_bound(program, HARDWARE, steps, gpus, max_staleness=eta, in_order=in_order).seconds

    for in_order in (False, True):
        here_s = bound_s(gpus, eta, in_order) * (1 + 1e-12)
        assert bound_s(gpus + 1, eta, in_order) <= here_s
        assert bound_s(gpus, eta + 1, in_order) <= here_s
    assert bound_s(gpus, eta, False) <= bound_s(gpus, eta, True) * (1 + 1e-12)


@pytest.mark.parametrize("steps", [[[0, 1]], [[[]]], [[[0.5]]], [[[2]]], [[[-1]]]])
def test_steps_that_are_no_rows_of_the_program_are_refused(steps: list[list[list[float]]]) -> None:
    with pytest.raises(ValueError, match="steps"):
        lower_bound(program_of([waiting(1.0), waiting(1.0)]), HARDWARE, steps, 8)


@pytest.mark.parametrize(
    ("gpus", "limits", "message"),
    [
        (0, {}, "gpus"),
        (8, {"max_staleness": -1}, "max_staleness"),
        (8, {"depth_groups": 0}, "depth_groups"),
        (8, {"in_order": True}, "in_order"),
    ],
)
def test_limits_out_of_range_are_refused(gpus: int, limits: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        lower_bound(program_of([waiting(1.0)]), HARDWARE, [[[0]]], gpus, **limits)
