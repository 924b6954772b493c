"""The serving model against figures worked out by hand; times are binary fractions, so that they are exact."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from small_programs import SmallCall, SmallExecution, program_of

from gyre.errors import InputError
from gyre.sim.serving import Ended, EndReason, EngineSpec, ServingModel

ENGINE = EngineSpec(
    step_base_s=1.0,
    step_expert_s=0.0,
    expert_share=0.0,
    step_sequence_s=0.25,
    step_context_s=1 / 64,
    prefill_base_s=0.5,
    prefill_token_s=1 / 64,
    prefill_attention_s=0.0,
    kv_tokens=1_000,
    kv_sequence_tokens=0,
    max_running=8,
    max_prefill_tokens=1_000,
    migration_s_per_token=math.inf,
)
ONE_CALL = SmallExecution((SmallCall(10, 5),))
TWO_CALLS = SmallExecution(
    (SmallCall(10, 5), SmallCall(20, 4, after=(0,), wait_s=64.0, prefix_call=0, prefix_tokens=15))
)
PREFILL_10_S = 0.5 + 10 / 64
DECODE_10_5_S = 4 * 1.25 + (11 + 12 + 13 + 14) / 64  # the first of five tokens comes with prefill


def _model(*executions: SmallExecution, engines: int = 1, rebalance: float = 1.5, **changes: float) -> ServingModel:
    spec = replace(ENGINE, **changes)
    model = ServingModel(program_of(executions), [spec] * engines, rebalance=rebalance)
    for engine in range(engines):
        model.open(engine)
    return model


def _start(
    model: ServingModel, execution: int, template: int = 0, *, setup_s: float = 0.0, harness_s: float = math.inf
) -> None:
    model.start(execution, template, setup_s=setup_s, harness_deadline_s=harness_s, overall_deadline_s=math.inf)


def test_one_call_takes_a_prefill_and_an_iteration_for_each_further_token() -> None:
    model = _model(ONE_CALL)
    _start(model, 7, setup_s=2.0)
    end_s = 2.0 + PREFILL_10_S + DECODE_10_5_S
    assert model.advance(math.inf) == Ended(end_s, 7, EndReason.FINISHED, 5)
    assert model.advance(100.0) is None
    meters = model.meters(0)
    assert (meters.busy_s, meters.prefill_s) == (end_s - 2.0, PREFILL_10_S)
    assert (meters.decoded_tokens, meters.prefilled_tokens, meters.kv_tokens) == (5, 10, 0)


def test_decode_rate_of_a_mixture_of_experts() -> None:
    """Qwen3-235B-A22B: 6.81 + 16.4 (1 - (1 - 8/128)^64) + .0514 * 64 + 1.109e-5 S ms, S from 64 * 1,001 on."""
    calls = SmallExecution(tuple(SmallCall(1_000, 101, thread=thread) for thread in range(64)))
    model = _model(
        calls,
        step_base_s=6.81e-3,
        step_expert_s=16.4e-3,
        expert_share=8 / 128,
        step_sequence_s=5.14e-5,
        step_context_s=1.109e-8,
        max_running=64,
        kv_tokens=10**6,
        max_prefill_tokens=10**6,
        prefill_token_s=0.0,
    )
    _start(model, 0)
    ended = model.advance(math.inf)
    assert ended is not None
    covered = 1 - (15 / 16) ** 64
    contexts = sum(64 * (1_001 + step) for step in range(100))
    expected_ms = 100 * (6.81 + 16.4 * covered + 0.0514 * 64) + 1.109e-5 * contexts
    assert ended.time_s - 0.5 == pytest.approx(expected_ms / 1e3, rel=1e-12)


def test_tokens_are_counted_in_the_middle_of_a_call() -> None:
    model = _model(ONE_CALL)
    _start(model, 0, harness_s=5.0)
    assert model.advance(PREFILL_10_S - 1 / 64) is None
    assert model.generated_tokens([0]).tolist() == [0]
    model.advance(PREFILL_10_S + 1.25 + 11 / 64)
    assert model.generated_tokens([0]).tolist() == [2]
    assert model.advance(math.inf) == Ended(5.0, 0, EndReason.HARNESS_TIMEOUT, 4)
    assert model.meters(0).kv_tokens == 0


def test_a_request_in_mid_iteration_is_prefilled_at_its_end() -> None:
    model = _model(ONE_CALL)
    _start(model, 0)
    _start(model, 1, setup_s=2.0)
    boundary_s = PREFILL_10_S + 1.25 + 11 / 64  # 2.078125, in the middle of whose iteration the second call starts
    alone_s = boundary_s + PREFILL_10_S
    together_s = [1.5 + (context + second) / 64 for context, second in ((12, 11), (13, 12), (14, 13))]
    assert model.advance(math.inf) == Ended(alone_s + sum(together_s), 0, EndReason.FINISHED, 5)
    assert model.advance(math.inf) == Ended(alone_s + sum(together_s) + 1.25 + 14 / 64, 1, EndReason.FINISHED, 5)


def test_a_follow_up_finds_its_prefix() -> None:
    model = _model(TWO_CALLS, prefill_attention_s=1 / 64)
    _start(model, 0)
    ended = model.advance(math.inf)
    first_s = PREFILL_10_S + 10 * 5 / 64 + DECODE_10_5_S
    second_s = 0.5 + 5 / 64 + 5 * (15 + 2.5) / 64 + 3 * 1.25 + (21 + 22 + 23) / 64
    assert ended == Ended(first_s + 64.0 + second_s, 0, EndReason.FINISHED, 9)
    meters = model.meters(0)
    assert (meters.prefilled_tokens, meters.cached_tokens, meters.recomputed_tokens) == (15, 15, 0)


def test_an_evicted_tail_is_computed_again() -> None:
    other = SmallExecution((SmallCall(20, 10), SmallCall(1, 1, after=(0,), wait_s=1e3)))
    model = _model(TWO_CALLS, other, kv_tokens=40)
    _start(model, 0)
    _start(model, 1, template=1, setup_s=32.0)  # 30 tokens beside 15 idle ones in 40
    model.advance(60.0)
    assert model.meters(0).evicted_tokens == 5
    assert model.meters(0).kv_tokens == 40
    assert model.advance(200.0) is not None
    meters = model.meters(0)
    assert (meters.cached_tokens, meters.recomputed_tokens) == (10, 5)


def test_a_batch_that_does_not_fit_waits() -> None:
    model = _model(ONE_CALL, kv_tokens=29)
    _start(model, 0)
    _start(model, 1)
    model.advance(1.0)
    assert (model.meters(0).running, model.meters(0).waiting, model.meters(0).kv_tokens) == (1, 1, 15)
    ends = [model.advance(math.inf), model.advance(math.inf)]
    assert [ended.time_s for ended in ends if ended] == [
        PREFILL_10_S + DECODE_10_5_S,
        2 * (PREFILL_10_S + DECODE_10_5_S),
    ]


def test_threads_stick_to_their_engine_and_spread_by_load() -> None:
    model = _model(TWO_CALLS, engines=2)
    for execution in range(4):
        _start(model, execution)
    model.advance(20.0)
    assert model.load().tolist() == [2, 2]
    for _ in range(4):
        assert model.advance(math.inf) is not None
    assert [model.meters(engine).cached_tokens for engine in range(2)] == [30, 30]
    assert model.load().tolist() == [0, 0]


def test_an_overloaded_home_is_left() -> None:
    """With rebalance 0 a home may have one thread: the first of two to come back leaves, and loses its prefix."""
    calls = [SmallCall(10, 1, thread=thread) for thread in range(2)]
    calls += [SmallCall(20, 2, (thread,), 9.0, thread, 11, thread) for thread in range(2)]
    model = ServingModel(program_of([SmallExecution(tuple(calls))]), [ENGINE, ENGINE], rebalance=0.0)
    model.open(0)
    _start(model, 0)
    model.advance(5.0)
    model.open(1)
    assert model.load().tolist() == [2, 0]
    model.advance(10.0)
    assert model.load().tolist() == [1, 1]
    assert [model.meters(engine).cached_tokens for engine in range(2)] == [11, 0]
    assert [model.meters(engine).recomputed_tokens for engine in range(2)] == [0, 11]


@pytest.mark.parametrize(
    ("migrate", "rate", "moved", "again"), [(True, 1 / 64, 13, 0), (False, 1 / 64, 0, 12), (True, math.inf, 0, 12)]
)
def test_a_closed_engines_sequences_go_on_elsewhere(migrate: bool, rate: float, moved: int, again: int) -> None:
    model = ServingModel(program_of([ONE_CALL]), [replace(ENGINE, migration_s_per_token=rate)] * 2)
    model.open(0)
    _start(model, 0)
    third_s = PREFILL_10_S + 2 * 1.25 + (11 + 12) / 64  # end of the iteration that makes the third token
    model.advance(third_s + 0.5)
    model.open(1)
    model.close(0, migrate=migrate)
    assert model.generated_tokens([0]).tolist() == [3]
    transfer_s = 13 / 64 if moved else 0.0
    new = 1 if moved else 13
    rest_s = transfer_s + 0.5 + new / 64 + 1.25 + 14 / 64
    assert model.advance(math.inf) == Ended(third_s + 0.5 + rest_s, 0, EndReason.FINISHED, 5)
    meters = model.meters(1)
    assert (meters.migrated_tokens, meters.recomputed_tokens, meters.prefilled_tokens) == (moved, again, new)
    assert model.meters(0).decoded_tokens + meters.decoded_tokens == 5


@pytest.mark.parametrize(
    ("recompute", "extra_s", "again"), [(False, 0.0, 0), (True, 0.5 + 13 / 64 - 1.25 - 13 / 64, 12)]
)
def test_a_publish_pauses_and_computes_again(recompute: bool, extra_s: float, again: int) -> None:
    """Paused at the third token for 10 s; the prefill that replaces the KV takes the next token's iteration's place."""
    model = _model(ONE_CALL)
    _start(model, 0)
    third_s = PREFILL_10_S + 2 * 1.25 + (11 + 12) / 64
    model.advance(third_s - 0.25)
    model.pause(0)
    model.advance(third_s + 10.0)
    assert model.generated_tokens([0]).tolist() == [3]
    model.resume(0, recompute=recompute)
    end_s = PREFILL_10_S + DECODE_10_5_S + 10.0 + extra_s
    assert model.advance(math.inf) == Ended(end_s, 0, EndReason.FINISHED, 5)
    assert model.meters(0).recomputed_tokens == again


def test_requests_wait_for_an_engine_to_open() -> None:
    model = ServingModel(program_of([ONE_CALL]), [ENGINE])
    _start(model, 0)
    model.advance(50.0)
    model.open(0)
    assert model.advance(math.inf) == Ended(50.0 + PREFILL_10_S + DECODE_10_5_S, 0, EndReason.FINISHED, 5)


def test_an_execution_without_calls_ends_with_its_set_up() -> None:
    model = ServingModel(program_of([SmallExecution(), ONE_CALL]), [ENGINE])
    _start(model, 3, setup_s=4.0)
    assert model.advance(math.inf) == Ended(4.0, 3, EndReason.FINISHED, 0)


def test_more_executions_than_foreseen() -> None:
    model = ServingModel(program_of([TWO_CALLS]), [replace(ENGINE, kv_tokens=10**6)], max_executions=1)
    model.open(0)
    for execution in range(3_000):
        _start(model, execution, setup_s=execution / 64)
    ends = []
    while (ended := model.advance(math.inf)) is not None:
        ends.append(ended.execution)
    assert sorted(ends) == list(range(3_000))
    assert model.meters(0).decoded_tokens == 3_000 * 9


def test_a_request_that_fits_no_engine_is_refused() -> None:
    with pytest.raises(InputError, match=r"execution x1, call 1: 24 tokens .* more than 20"):
        ServingModel(program_of([ONE_CALL, TWO_CALLS]), [replace(ENGINE, kv_tokens=23, kv_sequence_tokens=3)])


def test_an_inconsistent_program_is_refused() -> None:
    program = program_of([TWO_CALLS])
    program.dependencies[1] = 2
    with pytest.raises(InputError, match="execution x0, call 1: dependencies"):
        ServingModel(program, [ENGINE])
    with pytest.raises(InputError, match="execution x0, call 0: output_tokens"):
        ServingModel(program_of([SmallExecution((SmallCall(1, 0),))]), [ENGINE])


@pytest.mark.parametrize(
    "change",
    [{"step_base_s": -1.0}, {"kv_tokens": 0}, {"prefill_base_s": 0.0, "prefill_token_s": 0.0}, {"expert_share": 2.0}],
)
def test_an_engine_that_makes_no_sense_is_refused(change: dict[str, float]) -> None:
    with pytest.raises(InputError, match="engine 0"):
        _model(ONE_CALL, **change)


def test_misuse_is_refused() -> None:
    model = _model(ONE_CALL)
    _start(model, 1)
    for misuse in (
        lambda: _start(model, 1),
        lambda: model.cancel(2),
        lambda: model.open(0),
        lambda: model.resume(0, recompute=False),
        lambda: model.close(1, migrate=False),
        lambda: model.advance(-1.0),
    ):
        with pytest.raises(ValueError, match=r"execution|engine|until_s"):
            misuse()
