"""The serving model as the simulated cluster drives it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from gyre.workload.program import Program

from . import cancellation, control, executions, loop, reading
from .replay import prepare
from .spec import Ended, EndReason, EngineMeters, EngineSpec
from .state import FINISHED, HARNESS_TIMEOUT, OVERALL_TIMEOUT
from .storage import allocate, with_requests, with_slots

_REASONS = list(EndReason)


class ServingModel:
    """Executions of `program` on engines, advanced between the actions of a control plane.

    Time starts at 0 with every engine closed. The package docstring has the rules. `rebalance` is how much more loaded
    than the least loaded engine a thread's home may be (inf: threads never move while their home is open);
    `max_executions` is how many may run at once before the arrays are enlarged.

    Raises InputError if an engine's constants or the program cannot be used, or if a request fits no engine.
    """

    def __init__(
        self, program: Program, engines: Sequence[EngineSpec], *, rebalance: float = 1.5, max_executions: int = 1024
    ) -> None:
        if not engines:
            raise ValueError("give at least one engine")
        if not rebalance >= 0:
            raise ValueError(f"rebalance is {rebalance}; give a number of at least 0")
        for index, engine in enumerate(engines):
            engine.check(index)
        replay = prepare(program, engines)
        self._width = replay.tables.width.tolist()
        self._engine_count = len(engines)
        self._slots: dict[int, int] = {}
        self._free_slots: list[int] = []
        self._opened = False  # whether an engine was opened since time last went on
        self._in_flight = 0  # bound on the calls released and not finished
        self._state = allocate(replay, engines, rebalance)
        self._add_slots(max(max_executions, 1))

    @property
    def now_s(self) -> float:
        """Present time in seconds."""
        return float(self._state.world["now_s"][0])

    def _add_slots(self, slots: int) -> None:
        old = len(self._state.executions)
        self._state = with_slots(self._state, slots)
        self._free_slots.extend(range(slots - 1, old - 1, -1))

    def _slot(self, execution: int) -> int:
        try:
            return self._slots[execution]
        except KeyError:
            raise ValueError(f"execution {execution} is not running") from None

    def _vacate(self, slot: int) -> int:
        """Make a slot free for another execution; returns the id of the one that had it."""
        execution = self._state.executions[slot]
        identifier = int(execution["id"])
        del self._slots[identifier]
        self._free_slots.append(slot)
        self._in_flight -= self._width[execution["template"]]
        return identifier

    def start(
        self, execution: int, template: int, *, setup_s: float, harness_deadline_s: float, overall_deadline_s: float
    ) -> None:
        """Start row `template` of the program now, under the caller's id `execution` (any int64 not running now).

        Deadlines are absolute times, inf for none. Raises ValueError if the id is in use or a time cannot be used.
        """
        if execution in self._slots:
            raise ValueError(f"execution {execution} is running already")
        if not 0 <= template < len(self._width):
            raise ValueError(f"template {template} is not a row of the program")
        if not (setup_s >= 0 and math.isfinite(setup_s)):
            raise ValueError(f"setup_s is {setup_s}; give a finite time of at least 0")
        if math.isnan(harness_deadline_s) or math.isnan(overall_deadline_s):
            raise ValueError("a deadline is not a number; give a time, inf for none")
        if not self._free_slots:
            self._add_slots(2 * len(self._state.executions))
        self._in_flight += self._width[template]
        if self._in_flight > len(self._state.requests):
            self._state = with_requests(self._state, max(1024, 2 * self._in_flight))
        slot = self._free_slots.pop()
        self._slots[execution] = slot
        deadline_s = min(harness_deadline_s, overall_deadline_s)
        reason = HARNESS_TIMEOUT if harness_deadline_s <= overall_deadline_s else OVERALL_TIMEOUT
        self._state.executions["id"][slot] = execution
        self._state.executions["reason"][slot] = FINISHED if math.isinf(deadline_s) else reason
        executions.start_execution(self._state, slot, template, self.now_s + setup_s, float(deadline_s))

    def cancel(self, execution: int) -> None:
        """Free everything a running execution holds; its end is not reported."""
        slot = self._slot(execution)
        cancellation.cancel_execution(self._state, slot)
        self._vacate(slot)

    def _engine(self, engine: int, *, is_open: bool, is_paused: bool | None = None) -> int:
        if not 0 <= engine < self._engine_count:
            raise ValueError(f"there is no engine {engine}")
        row = self._state.engines[engine]
        if bool(row["open"]) != is_open:
            raise ValueError(f"engine {engine} is {'closed' if is_open else 'open'}")
        if is_paused is not None and bool(row["paused"]) != is_paused:
            raise ValueError(f"engine {engine} is {'not ' if is_paused else ''}paused")
        return engine

    def open(self, engine: int) -> None:
        """Begin to admit on a closed engine. Raises ValueError if it is open.

        Requests that wait for an engine are routed when time goes on, so that engines opened together share them.
        """
        control.open_engine(self._state, self._engine(engine, is_open=False))
        self._opened = True

    def close(self, engine: int, *, migrate: bool) -> None:
        """Take an open engine out of service now; its requests go elsewhere, KV follows where `migrate` allows."""
        control.close_engine(self._state, self._engine(engine, is_open=True), migrate)

    def pause(self, engine: int) -> None:
        """Stop an open engine at the end of its present iteration or prefill."""
        control.pause_engine(self._state, self._engine(engine, is_open=True, is_paused=False))

    def resume(self, engine: int, *, recompute: bool) -> None:
        """Let a paused engine go on; `recompute` flushes its KV, and running sequences are prefilled again."""
        control.resume_engine(self._state, self._engine(engine, is_open=True, is_paused=True), recompute)

    def advance(self, until_s: float) -> Ended | None:
        """Run all events up to and at `until_s`, or up to the first end of an execution, which is returned.

        With until_s = inf and nothing left to happen, time stays at the last event.
        """
        if not until_s >= self.now_s:
            raise ValueError(f"until_s is {until_s}, before the present time {self.now_s}")
        if self._opened:
            control.place_held(self._state)
            self._opened = False
        slot = loop.advance(self._state, float(until_s))
        if slot < 0:
            return None
        row = self._state.executions[slot]
        tokens, reason, ended_s = int(row["generated_tokens"]), _REASONS[row["reason"]], float(row["ended_s"])
        return Ended(ended_s, self._vacate(slot), reason, tokens)

    def generated_tokens(self, executions: Sequence[int]) -> npt.NDArray[np.int64]:
        """Tokens sampled so far by each of these running executions."""
        totals = reading.generated_tokens(self._state)
        return totals[np.fromiter((self._slot(execution) for execution in executions), np.int64)]

    def meters(self, engine: int) -> EngineMeters:
        """One engine's state and totals at the present time."""
        if not 0 <= engine < self._engine_count:
            raise ValueError(f"there is no engine {engine}")
        return reading.meters(self._state, engine)

    def load(self) -> npt.NDArray[np.int64]:
        """Live threads at home on each engine: those past their first request and short of their last call's end."""
        return self._state.engines["load"][: self._engine_count].copy()
