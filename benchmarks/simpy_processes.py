"""The serving model as one would first write it with SimPy: a process an engine, an execution and a thread.

The rules are those of `gyre.sim.serving`: prefill first, continuous batching, KV reserved at admission, idle KV evicted
least recently used first, sticky least-loaded routing, tool waits, sub-agents that fork and join. A decode run is one
time-out in closed form, interrupted by arrivals, not a loop over tokens. Left out is what a control plane does (open,
close, pause, cancel, deadlines). Calls of one thread follow each other, and events that fall on one time happen in the
order in which SimPy has them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

import simpy
from simpy_engine import Engine, Execution, Process, Request, Thread

from gyre.sim.serving import EngineSpec
from gyre.workload.program import Program

COLUMNS = ("call_start", "setup_s", "thread", "input_tokens", "output_tokens", "prefix_call", "prefix_tokens", "wait_s")


class Serving:
    """All executions of a program, each once and all at one time, on a set of engines."""

    def __init__(self, program: Program, engines: Sequence[EngineSpec]) -> None:
        self.env = simpy.Environment()
        self.engines = [Engine(self.env, spec) for spec in engines]
        self.rotation = 0
        self.ends_s: dict[int, float] = {}
        self.columns = {name: getattr(program, name).tolist() for name in COLUMNS}
        self.parents = parents_of(program)
        for row in range(program.executions):
            self.env.process(self.execution(row))

    def run(self) -> dict[int, float]:
        """Run to the end; return when each execution ended, in seconds."""
        self.env.run()
        return self.ends_s

    def execution(self, row: int) -> Process:
        """Set up one execution and run all its threads."""
        first, end = self.columns["call_start"][row : row + 2]
        by_thread: dict[int, list[int]] = defaultdict(list)
        for call in range(end - first):
            by_thread[self.columns["thread"][first + call]].append(call)
        execution = Execution(first, end - first, ended=[self.env.event() for _ in range(end - first)])
        execution.threads = [Thread(execution, calls, len(calls)) for _, calls in sorted(by_thread.items())]
        yield self.env.timeout(self.columns["setup_s"][row])
        yield self.env.all_of([self.env.process(self.thread(thread)) for thread in execution.threads])
        self.ends_s[row] = self.env.now

    def thread(self, thread: Thread) -> Process:
        """Make a thread's calls one after another, each when those it depends on have ended and its wait is over."""
        columns, execution = self.columns, thread.execution
        for call in thread.calls:
            row = execution.row + call
            awaited = [execution.ended[parent] for parent in self.parents[row]]
            if len(awaited) > 1 or not all(event.processed for event in awaited):
                yield self.env.all_of(awaited)
            yield self.env.timeout(columns["wait_s"][row])
            parent = columns["prefix_call"][row]
            holder = None if parent < 0 else execution.threads[columns["thread"][execution.row + parent]]
            request = Request(
                thread,
                holder,
                columns["prefix_tokens"][row],
                columns["input_tokens"][row],
                columns["output_tokens"][row],
                execution.ended[call],
            )
            self.route(request).submit(request)
            yield request.ended

    def route(self, request: Request, rebalance: float = 1.5) -> Engine:
        """Choose an engine: a thread stays where it is unless that is loaded much more than the least loaded one."""
        thread = request.thread
        takers = [engine for engine in self.engines if engine.need(request) <= engine.spec.kv_tokens]
        least = min(engine.load for engine in takers)
        if thread.home in takers and thread.home.load <= rebalance * least + 1:
            return thread.home
        in_turn = self.engines[self.rotation :] + self.engines[: self.rotation]
        chosen = next(engine for engine in in_turn if engine in takers and engine.load == least)
        self.rotation = (self.engines.index(chosen) + 1) % len(self.engines)
        if thread.home is not None:
            thread.home.forget(thread)
            thread.home.load -= 1
        chosen.load += 1
        thread.home = chosen
        return chosen


def parents_of(program: Program) -> list[list[int]]:
    """Calls, local to their execution, that each call waits for."""
    parents: list[list[int]] = [[] for _ in range(program.calls)]
    starts, edges, followers = program.call_start.tolist(), program.successor_start.tolist(), program.successor.tolist()
    for first, end in pairwise(starts):
        for row in range(first, end):
            for follower in followers[edges[row] : edges[row + 1]]:
                parents[first + follower].append(row - first)
    return parents
