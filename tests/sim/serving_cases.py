"""Random programs, engines and control scripts for the serving model's tests."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st
from small_programs import SmallCall, SmallExecution, program_of

from gyre.sim.serving import EngineSpec
from gyre.workload.program import Program

TICK = 1 / 64

Draw = Callable[[st.SearchStrategy[int]], int]
Action = tuple[str, float, int, int]  # what, time since the last action, two free numbers


class Dyadic:
    """Multiples of 1/64: sums and products are exact in floating point, so that events do fall on one time."""

    experts = False

    def __init__(self, draw: Draw) -> None:
        self._draw = draw

    def __call__(self, low: int, high: int) -> float:
        return TICK * self._draw(st.integers(low, high))


class Real(Dyadic):
    """Reals without a pattern: no two events fall on one time unless one causes the other."""

    experts = True

    def __init__(self, draw: Draw) -> None:
        super().__init__(draw)
        self._noise = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))

    def __call__(self, low: int, high: int) -> float:
        drawn = super().__call__(low, high)
        return drawn * self._noise.uniform(0.5, 1.5) if drawn else 0.0


@dataclass(frozen=True)
class Case:
    """What one comparison runs."""

    program: Program
    engines: tuple[EngineSpec, ...]
    rebalance: float
    script: tuple[Action, ...]


def _execution(draw: Draw, number: Dyadic) -> SmallExecution:
    """A release graph in index order: chains, forks to other threads, joins, short prefixes, branches."""
    calls: list[SmallCall] = []
    for index in range(draw(st.integers(0, 7))):
        after = (
            tuple(sorted({draw(st.integers(0, index - 1)) for _ in range(draw(st.integers(0, 2)))})) if index else ()
        )
        parent = draw(st.integers(-1, index - 1))
        context = calls[parent].input_tokens + calls[parent].output_tokens if parent >= 0 else 0
        prefix = draw(st.integers(0, context))
        grows = draw(st.booleans())
        calls.append(
            SmallCall(
                input_tokens=max((context if grows else prefix) + draw(st.integers(0, 12)), 1),
                output_tokens=draw(st.integers(1, 9)),
                after=after,
                wait_s=number(0, 64) if draw(st.booleans()) else 0.0,
                prefix_call=parent,
                prefix_tokens=context if grows else prefix,
                thread=draw(st.integers(0, 2)),
            )
        )
    return SmallExecution(calls=tuple(calls))


def _engine(draw: Draw, number: Dyadic, needed: int) -> EngineSpec:
    state = draw(st.integers(0, 5))
    return EngineSpec(
        step_base_s=number(1, 64),
        step_expert_s=number(0, 64) if number.experts else 0.0,
        expert_share=0.3 if number.experts else 0.0,
        step_sequence_s=number(0, 32),
        step_context_s=number(0, 4),
        prefill_base_s=number(1, 32),
        prefill_token_s=number(0, 8),
        prefill_attention_s=number(0, 2),
        kv_tokens=needed + state + draw(st.integers(0, 60)),
        kv_sequence_tokens=state,
        max_running=draw(st.integers(1, 5)),
        max_prefill_tokens=draw(st.integers(1, 80)),
        migration_s_per_token=draw(st.sampled_from([math.inf, 0.0, 1.0, 1.0])) * number(1, 8),
    )


def _script(draw: Draw, number: Dyadic) -> tuple[Action, ...]:
    kinds = st.sampled_from(["start"] * 5 + ["open"] * 2 + ["close"] * 3 + ["pause", "resume", "cancel", "run"])
    pause = st.sampled_from([0, 64, 256])
    actions = [
        (draw(kinds), number(0, draw(pause)), draw(st.integers(0, 9)), draw(st.integers(0, 9))) for _ in range(18)
    ]
    return tuple(actions[: draw(st.integers(2, 18))])


def _case(draw: Draw, number: Dyadic) -> Case:
    program = program_of([_execution(draw, number) for _ in range(draw(st.integers(1, 3)))])
    needed = int((program.input_tokens + program.output_tokens).max(initial=1))
    engines = [_engine(draw, number, needed)]
    for _ in range(draw(st.sampled_from([0, 1, 1, 2, 4, 7]))):
        engines += [_engine(draw, number, max(1, needed - draw(st.sampled_from([0, 0, 10]))))]
    rebalance = draw(st.sampled_from([0.0, 1.0, 1.5, math.inf]))
    return Case(program, tuple(engines), rebalance, _script(draw, number))


@st.composite
def dyadic_cases(draw: Draw) -> Case:
    """Cases in which ties happen and every sum is exact."""
    return _case(draw, Dyadic(draw))


@st.composite
def real_cases(draw: Draw) -> Case:
    """Cases in general position, with expert coverage in the step time."""
    return _case(draw, Real(draw))
