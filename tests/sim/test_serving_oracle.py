"""The compiled serving model agrees with the iteration-by-iteration one on random small cases."""

from __future__ import annotations

import math
from dataclasses import asdict

import pytest
from hypothesis import given, settings
from serving_cases import Action, Case, dyadic_cases, real_cases
from serving_oracle import Oracle

from gyre.sim.serving import Ended, EndReason, EngineMeters, ServingModel

RELATIVE = 1e-12


class Pair:
    """Both models under the same control; every reading is compared."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.model = ServingModel(case.program, case.engines, rebalance=case.rebalance, max_executions=1)
        self.oracle = Oracle(case.program, case.engines, rebalance=case.rebalance)
        self.running: list[int] = []
        self.templates: dict[int, int] = {}
        self.sampled_tokens = 0  # by executions that ended or were cancelled
        self.open = [False] * len(case.engines)
        self.paused = [False] * len(case.engines)
        self.ended: list[Ended] = []

    def run(self, wait_s: float, *, stop_at_end: bool) -> None:
        """Advance both; each by its own clock, for the clocks may differ in their last digits."""
        until_s, expected_until_s = self.model.now_s + wait_s, self.oracle.now_s + wait_s
        while True:
            ended, expected = self.model.advance(until_s), self.oracle.advance(expected_until_s)
            assert self.model.now_s == pytest.approx(self.oracle.now_s, rel=RELATIVE)
            if ended is None or expected is None:
                assert ended is expected
                self.compare()
                return
            assert ended.time_s == pytest.approx(expected.time_s, rel=RELATIVE)
            assert (ended.execution, ended.reason) == (expected.execution, expected.reason)
            assert ended.generated_tokens == expected.generated_tokens
            self.running.remove(ended.execution)
            self.ended.append(ended)
            self.sampled_tokens += ended.generated_tokens
            if ended.reason == EndReason.FINISHED:
                assert ended.generated_tokens == self.output_tokens(self.templates[ended.execution])
            self.compare()
            if stop_at_end:
                return

    def compare(self) -> None:
        for index in range(len(self.case.engines)):
            meters, expected = self.model.meters(index), EngineMeters(**self.oracle.meters(index))
            for name, value in asdict(meters).items():
                if name.endswith("_s"):
                    assert value == pytest.approx(getattr(expected, name), rel=1e-9, abs=1e-9)
                else:
                    assert value == getattr(expected, name), (index, name)
        assert self.model.load().tolist() == self.oracle.loads()
        assert self.model.generated_tokens(self.running).tolist() == self.oracle.generated_tokens(self.running)

    def act(self, action: Action) -> None:
        what, wait_s, first, second = action
        self.run(wait_s, stop_at_end=second % 2 == 0)
        engine = first % len(self.case.engines)
        if what == "start":
            self.start(wait_s, first, second)
        elif what == "open" and not self.open[engine]:
            self.control("open", engine)
        elif what == "close" and self.open[engine]:
            self.control("close", engine, migrate=second % 3 > 0)
        elif what == "pause" and self.open[engine] and not self.paused[engine]:
            self.control("pause", engine)
        elif what == "resume" and self.paused[engine]:
            self.control("resume", engine, recompute=second % 3 > 0)
        elif what == "cancel" and self.running:
            execution = self.running.pop(first % len(self.running))
            self.sampled_tokens += int(self.model.generated_tokens([execution])[0])
            self.model.cancel(execution)
            self.oracle.cancel(execution)
        self.compare()

    def start(self, wait_s: float, first: int, second: int) -> None:
        execution = 100 + len(self.running) + 10 * len(self.ended)
        while execution in self.running:
            execution += 1
        harness_s = 4 * wait_s + second if second > 6 else math.inf
        overall_s = 3 * wait_s + 2 * first if first in (2, 3) else math.inf
        self.templates[execution] = second % self.case.program.executions
        for model in (self.model, self.oracle):
            model.start(
                execution,
                self.templates[execution],
                setup_s=wait_s if first > 4 else 0.0,
                harness_deadline_s=model.now_s + harness_s,
                overall_deadline_s=model.now_s + overall_s,
            )
        self.running.append(execution)

    def output_tokens(self, template: int) -> int:
        first, end = self.case.program.call_start[template : template + 2]
        return int(self.case.program.output_tokens[first:end].sum())

    def control(self, verb: str, engine: int, **options: bool) -> None:
        getattr(self.model, verb)(engine, **options)
        getattr(self.oracle, verb)(engine, **options)
        self.open[engine] = verb != "close"
        self.paused[engine] = verb == "pause"

    def drain(self) -> None:
        """Let everything that runs come to its end; nothing may be left, and no token lost or counted twice."""
        for engine in range(len(self.case.engines)):
            if not self.open[engine]:
                self.control("open", engine)
            elif self.paused[engine]:
                self.control("resume", engine, recompute=False)
        self.run(1e6, stop_at_end=False)
        assert not self.running
        for engine in range(len(self.case.engines)):
            meters = self.model.meters(engine)
            assert (meters.running, meters.waiting, meters.kv_tokens) == (0, 0, 0)
        assert self.model.load().sum() == 0
        meters = [self.model.meters(engine) for engine in range(len(self.case.engines))]
        assert sum(meter.decoded_tokens for meter in meters) == self.sampled_tokens


def _agree(case: Case) -> None:
    pair = Pair(case)
    for engine in range(len(case.engines)):
        pair.act(("open", 0.0, engine, 0))
    for action in (("start", 0.0, 9, 0), *case.script):
        pair.act(action)
    pair.drain()


@given(dyadic_cases())
@settings(max_examples=200, deadline=None)
def test_agrees_with_the_oracle_where_events_coincide(case: Case) -> None:
    _agree(case)


@given(real_cases())
@settings(max_examples=150, deadline=None)
def test_agrees_with_the_oracle_in_general_position(case: Case) -> None:
    _agree(case)
