"""The serving model's rules in plain Python: one event an iteration, lists and dicts, nothing in closed form.

Slow and simple on purpose. It follows the docstring of `gyre.sim.serving`, not its code.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from gyre.sim.serving import Ended, EndReason, EngineSpec
from gyre.workload.program import Program

BOUNDARY, END, SETUP, TRANSFER, START, DEADLINE, DECISION = range(7)  # order at one time

Thread = tuple[int, int]  # execution, thread


@dataclass(eq=False)
class Execution:
    id: int
    calls_left: int
    waits_for: list[int]  # by call
    thread_calls: Counter[int]
    row: int  # of its first call in the program
    generated: int = 0


@dataclass(eq=False)
class Request:
    execution: Execution
    call: int
    thread: Thread
    prefix_thread: Thread | None
    prefix: int
    input: int
    output: int
    generated: int = 0
    admitted: bool = False
    carried: bool = False
    engine: Engine | None = None

    @property
    def context(self) -> int:
        return self.input + self.generated


@dataclass(eq=False)
class Engine:
    index: int
    spec: EngineSpec
    is_open: bool = False
    paused: bool = False
    flush: bool = False
    work: str | None = None  # "prefill" or "decode" while one is on
    since_s: float = 0.0
    batch: list[Request] = field(default_factory=list)
    filling: list[Request] = field(default_factory=list)
    waiting: list[Request] = field(default_factory=list)
    idle: dict[Thread, int] = field(default_factory=dict)  # least recently idle first
    held: dict[Thread, tuple[Request, int]] = field(default_factory=dict)  # who speaks for a thread, tokens computed
    transfers_end_s: float = 0.0
    busy_s: float = 0.0
    prefill_s: float = 0.0
    totals: Counter[str] = field(default_factory=Counter)

    def need(self, request: Request) -> int:
        return request.input + request.output + self.spec.kv_sequence_tokens

    def reserved(self) -> int:
        return sum(self.need(request) for request in self.batch + self.filling)

    def takes(self, request: Request) -> bool:
        return self.is_open and self.need(request) <= self.spec.kv_tokens

    def resident(self, thread: Thread) -> int:
        return self.held[thread][1] if thread in self.held else self.idle.get(thread, 0)

    def silence(self, request: Request) -> None:
        """The request no longer speaks for its thread."""
        if request.thread in self.held and self.held[request.thread][0] is request:
            del self.held[request.thread]

    def evict(self, tokens: int, spared: Thread | None) -> None:
        order = [thread for thread in self.idle if thread != spared] + [
            thread for thread in self.idle if thread == spared
        ]
        for thread in order:
            cut = min(tokens, self.idle[thread])
            self.idle[thread] -= cut
            self.totals["evicted"] += cut
            tokens -= cut
            if self.idle[thread] == 0:
                del self.idle[thread]
        assert tokens == 0

    def step_s(self) -> float:
        n, spec = len(self.batch), self.spec
        step = spec.step_base_s + spec.step_sequence_s * n
        step += spec.step_context_s * sum(request.context for request in self.batch)
        return step + spec.step_expert_s * (1 - (1 - spec.expert_share) ** n)


class Oracle:
    def __init__(self, program: Program, engines: Sequence[EngineSpec], *, rebalance: float = 1.5) -> None:
        self.program = program
        self.rebalance = rebalance
        self.engines = [Engine(index, spec) for index, spec in enumerate(engines)]
        self.executions: dict[int, Execution] = {}
        self.homes: dict[Thread, Engine] = {}
        self.unplaced: list[Request] = []
        self.rotation = 0
        self.opened = False
        self.now_s = 0.0
        self.sequence = 0
        self.events: list[tuple[float, int, int, object]] = []

    # Events

    def at(self, time_s: float, kind: int, item: object, tie: int | None = None) -> None:
        self.events.append((time_s, kind, self.sequence if tie is None else tie, item))
        self.sequence += 1

    def forget(self, kind: int, item: object) -> None:
        self.events = [event for event in self.events if not (event[1] == kind and event[3] is item)]

    def advance(self, until_s: float) -> Ended | None:
        if self.opened:
            self.place()
        while self.events:
            event = min(self.events, key=lambda event: event[:3])
            if event[0] > until_s:
                break
            self.events.remove(event)
            self.now_s, kind, _, item = event
            if kind == END:
                execution, reason = item
                del self.executions[execution.id]
                return Ended(self.now_s, execution.id, reason, execution.generated)
            self.fire(kind, item)
        if math.isfinite(until_s):
            self.now_s = until_s
        return None

    def fire(self, kind: int, item: object) -> None:
        if kind == BOUNDARY:
            self.end_work(item)
        elif kind == SETUP:
            self.report(item, EndReason.FINISHED)
        elif kind == TRANSFER:
            self.end_transfer(item)
        elif kind == START:
            self.route(item)
            self.enqueue(item)
        elif kind == DEADLINE:
            self.end_early(*item)
        else:
            self.decide(item)

    # Executions

    def start(
        self, execution: int, template: int, *, setup_s: float, harness_deadline_s: float, overall_deadline_s: float
    ) -> None:
        first, end = self.program.call_start[template : template + 2].tolist()
        state = Execution(
            execution,
            end - first,
            self.program.dependencies[first:end].tolist(),
            Counter(self.program.thread[first:end].tolist()),
            first,
        )
        self.executions[execution] = state
        for call in range(end - first):
            if state.waits_for[call] == 0:
                self.release(state, call, self.now_s + setup_s)
        if first == end:
            self.at(self.now_s + setup_s, SETUP, state)
        deadline_s, reason = min(
            (harness_deadline_s, EndReason.HARNESS_TIMEOUT),
            (overall_deadline_s, EndReason.OVERALL_TIMEOUT),
            key=lambda d: d[0],
        )
        if math.isfinite(deadline_s):
            self.at(max(deadline_s, self.now_s), DEADLINE, (state, reason))

    def release(self, execution: Execution, call: int, released_s: float) -> None:
        program, row = self.program, execution.row + call
        parent = int(program.prefix_call[row])
        request = Request(
            execution=execution,
            call=call,
            thread=(execution.id, int(program.thread[row])),
            prefix_thread=None if parent < 0 else (execution.id, int(program.thread[execution.row + parent])),
            prefix=int(program.prefix_tokens[row]),
            input=int(program.input_tokens[row]),
            output=int(program.output_tokens[row]),
        )
        self.at(released_s + float(program.wait_s[row]), START, request)

    def finish(self, request: Request) -> None:
        execution, engine = request.execution, request.engine
        if request.thread in engine.held and engine.held[request.thread][0] is request:
            del engine.held[request.thread]
            engine.idle[request.thread] = request.input + request.output
        execution.thread_calls[request.thread[1]] -= 1
        execution.generated += request.output
        execution.calls_left -= 1
        row = execution.row + request.call
        for call in self.program.successor[
            self.program.successor_start[row] : self.program.successor_start[row + 1]
        ].tolist():
            execution.waits_for[call] -= 1
            if execution.waits_for[call] == 0:
                self.release(execution, call, self.now_s)
        if execution.calls_left == 0:
            self.report(execution, EndReason.FINISHED)

    def report(self, execution: Execution, reason: EndReason) -> None:
        self.events = [e for e in self.events if not (e[1] == DEADLINE and e[3][0] is execution)]
        for thread in list(self.homes):
            if thread[0] == execution.id:
                self.leave_home(thread)
        self.at(self.now_s, END, (execution, reason))

    def end_early(self, execution: Execution, reason: EndReason) -> None:
        for engine in self.engines:
            for requests in (engine.batch, engine.filling, engine.waiting):
                for request in [request for request in requests if request.execution is execution]:
                    requests.remove(request)
                    engine.silence(request)
                    execution.generated += request.generated
        for request in [request for request in self.unplaced if request.execution is execution]:
            self.unplaced.remove(request)
            execution.generated += request.generated
        for event in list(self.events):
            if event[1] in (START, TRANSFER) and event[3].execution is execution:
                self.events.remove(event)
                execution.generated += event[3].generated
        self.forget(SETUP, execution)
        self.report(execution, reason)

    def cancel(self, execution: int) -> None:
        state = self.executions.pop(execution)
        if not any(event[1] == END and event[3][0] is state for event in self.events):
            self.end_early(state, EndReason.FINISHED)
        self.events = [e for e in self.events if not (e[1] == END and e[3][0] is state)]

    # Routing

    def loads(self) -> list[int]:
        counts = Counter(
            engine.index
            for thread, engine in self.homes.items()
            if self.executions[thread[0]].thread_calls[thread[1]] > 0
        )
        return [counts[engine.index] for engine in self.engines]

    def leave_home(self, thread: Thread) -> None:
        engine = self.homes.pop(thread, None)
        if engine is not None:
            engine.idle.pop(thread, None)
            engine.held.pop(thread, None)

    def choose(self, request: Request) -> Engine | None:
        candidates = [engine for engine in self.engines if engine.takes(request)]
        if not candidates:
            return None
        loads = self.loads()
        least = min(loads[engine.index] for engine in candidates)
        home = self.homes.get(request.thread)
        if home in candidates and (math.isinf(self.rebalance) or loads[home.index] <= self.rebalance * least + 1):
            return home
        from_rotation = self.engines[self.rotation :] + self.engines[: self.rotation]
        chosen = next(e for e in from_rotation if e in candidates and loads[e.index] == least)
        self.rotation = (chosen.index + 1) % len(self.engines)
        return chosen

    def route(self, request: Request) -> None:
        request.engine = self.choose(request)
        if request.engine is not None and self.homes.get(request.thread) is not request.engine:
            self.leave_home(request.thread)
            self.homes[request.thread] = request.engine

    def enqueue(self, request: Request) -> None:
        if request.engine is None:
            self.unplaced.append(request)
            return
        request.engine.waiting.append(request)
        if request.engine.work is None:
            self.ask(request.engine)

    # Engines

    def ask(self, engine: Engine) -> None:
        if not any(event[1] == DECISION and event[3] is engine for event in self.events):
            self.at(self.now_s, DECISION, engine, tie=engine.index)

    def begin(self, engine: Engine, work: str, duration_s: float) -> None:
        engine.work = work
        engine.since_s = self.now_s
        self.at(self.now_s + duration_s, BOUNDARY, engine, tie=engine.index)

    def stop_clock(self, engine: Engine) -> None:
        if engine.work is not None:
            engine.busy_s += self.now_s - engine.since_s
        if engine.work == "prefill":
            engine.prefill_s += self.now_s - engine.since_s
        engine.work = None

    def decide(self, engine: Engine) -> None:
        if engine.paused or not engine.is_open or engine.work is not None:
            return
        if engine.flush:
            engine.flush = False
            engine.waiting = engine.batch + engine.waiting
            engine.batch = []
            engine.idle.clear()
            engine.held.clear()
        duration_s = self.admit(engine)
        if engine.filling:
            self.begin(engine, "prefill", engine.spec.prefill_base_s + duration_s)
        elif engine.batch:
            self.begin(engine, "decode", engine.step_s())

    def cached(self, engine: Engine, request: Request) -> int:
        if request.carried:
            found = engine.idle.get(request.thread, 0)
        elif request.prefix_thread is not None:
            found = min(request.prefix, engine.resident(request.prefix_thread))
        else:
            found = 0
        return min(found, request.context - 1)

    def admit(self, engine: Engine) -> float:
        """Move requests from the queue to the prefill batch; the seconds their tokens take."""
        spec = engine.spec
        taken, duration_s = 0, 0.0
        while engine.waiting and len(engine.batch) + len(engine.filling) < spec.max_running:
            request = engine.waiting[0]
            cached = self.cached(engine, request)
            new = request.context - cached
            if engine.reserved() + engine.need(request) > spec.kv_tokens:
                break
            if engine.filling and taken + new > spec.max_prefill_tokens:
                break
            engine.waiting.pop(0)
            if self.homes.get(request.thread) is engine:
                engine.idle.pop(request.thread, None)
                engine.held[request.thread] = (request, cached)
            engine.filling.append(request)
            excess = engine.reserved() + sum(engine.idle.values()) - spec.kv_tokens
            engine.evict(max(excess, 0), request.prefix_thread)
            known = request.context - 1 if request.admitted else min(request.prefix, request.context - 1)
            engine.totals.update(prefilled=new, cached=cached, recomputed=known - cached)
            request.admitted, request.carried = True, False
            taken += new
            duration_s += spec.prefill_token_s * new + spec.prefill_attention_s * (new * (cached + new / 2))
        return duration_s

    def end_work(self, engine: Engine) -> None:
        work = engine.work
        self.stop_clock(engine)
        members = engine.batch
        if work == "prefill":
            members = engine.filling
            for request in members:
                if request.thread in engine.held and engine.held[request.thread][0] is request:
                    engine.held[request.thread] = (request, request.context)
            engine.batch = engine.batch + members
            engine.filling = []
        for request in list(members):
            request.generated += 1
            engine.totals["decoded"] += 1
            if request.generated == request.output:
                engine.batch.remove(request)
                self.finish(request)
        self.ask(engine)

    # Control

    def open(self, index: int) -> None:
        self.engines[index].is_open = True
        self.opened = True

    def place(self) -> None:
        self.opened = False
        for request in list(self.unplaced):
            self.route(request)
            if request.engine is not None:
                self.unplaced.remove(request)
                self.enqueue(request)

    def pause(self, index: int) -> None:
        self.engines[index].paused = True

    def resume(self, index: int, *, recompute: bool) -> None:
        engine = self.engines[index]
        engine.paused = False
        engine.flush = engine.flush or recompute
        if engine.work is None:
            self.ask(engine)

    def close(self, index: int, *, migrate: bool) -> None:
        engine = self.engines[index]
        self.stop_clock(engine)
        self.forget(BOUNDARY, engine)
        for thread, home in list(self.homes.items()):
            if home is engine:
                self.leave_home(thread)
        inbound = sorted(
            (event for event in self.events if event[1] == TRANSFER and event[3].engine is engine),
            key=lambda event: event[2],
        )
        self.events = [event for event in self.events if event not in inbound]
        running = engine.batch
        moved = running + engine.filling + engine.waiting + [event[3] for event in inbound]
        engine.batch, engine.filling, engine.waiting = [], [], []
        engine.is_open = engine.paused = engine.flush = False
        for request in moved:
            request.carried = False
            self.route(request)
            rate = engine.spec.migration_s_per_token
            if migrate and request in running and request.engine is not None and math.isfinite(rate):
                engine.transfers_end_s = max(engine.transfers_end_s, self.now_s) + request.context * rate
                self.at(engine.transfers_end_s, TRANSFER, request)
            else:
                self.enqueue(request)

    def end_transfer(self, request: Request) -> None:
        engine = request.engine
        engine.totals["migrated"] += request.context
        if self.homes.get(request.thread) is engine and request.thread not in engine.held:
            engine.idle.pop(request.thread, None)
            room = engine.spec.kv_tokens - engine.reserved()
            kept = min(request.context, room)
            engine.evict(max(sum(engine.idle.values()) + kept - room, 0), None)
            if kept > 0:
                engine.idle[request.thread] = kept
                request.carried = True
        self.enqueue(request)

    # Readings

    def generated_tokens(self, executions: Sequence[int]) -> list[int]:
        totals = {identifier: execution.generated for identifier, execution in self.executions.items()}
        requests = [
            r for engine in self.engines for r in engine.batch + engine.filling + engine.waiting
        ] + self.unplaced
        requests += [event[3] for event in self.events if event[1] in (START, TRANSFER)]
        for request in requests:
            totals[request.execution.id] += request.generated
        return [totals[execution] for execution in executions]

    def meters(self, index: int) -> dict[str, float]:
        engine = self.engines[index]
        under_way_s = self.now_s - engine.since_s
        return {
            "running": len(engine.batch) + len(engine.filling),
            "waiting": len(engine.waiting),
            "kv_tokens": engine.reserved() + sum(engine.idle.values()),
            "busy_s": engine.busy_s + (under_way_s if engine.work else 0.0),
            "prefill_s": engine.prefill_s + (under_way_s if engine.work == "prefill" else 0.0),
            **{
                f"{name}_tokens": engine.totals[name]
                for name in ("decoded", "prefilled", "cached", "evicted", "migrated", "recomputed")
            },
        }
