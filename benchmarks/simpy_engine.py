"""One engine of the serving model as a SimPy process: KV budget, prefix cache, prefill first, continuous batching."""

from __future__ import annotations

import heapq
import math
from collections import OrderedDict, deque
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

import simpy

from gyre.sim.serving import EngineSpec

Process = Generator[simpy.Event, Any, None]


@dataclass(eq=False, slots=True)
class Thread:
    """One conversation of an execution, at home on one engine."""

    execution: Execution
    calls: list[int]  # local to the execution
    calls_left: int
    home: Engine | None = None


@dataclass(eq=False, slots=True)
class Execution:
    """One execution in flight."""

    row: int  # of its first call in the program
    calls_left: int
    threads: list[Thread] = field(default_factory=list)
    ended: list[simpy.Event] = field(default_factory=list)  # by call


@dataclass(eq=False, slots=True)
class Request:
    """One call from its start to its last token."""

    thread: Thread
    prefix_thread: Thread | None
    prefix: int
    input: int
    output: int
    ended: simpy.Event


class Engine:
    """One engine: a process that prefills what it admits, else decodes its batch, else waits for an arrival."""

    def __init__(self, env: simpy.Environment, spec: EngineSpec) -> None:
        self.env = env
        self.spec = spec
        self.load = 0  # live threads at home here
        self.queue: deque[Request] = deque()
        self.batch: list[tuple[int, int, Request]] = []  # heap of (iteration at which it ends, order of admission)
        self.iterations = 0
        self.admissions = 0
        self.context = 0  # tokens of the batch
        self.reserved = 0  # KV tokens of admitted requests
        self.computed: dict[Thread, int] = {}  # tokens that a thread's admitted request holds computed
        self.idle: OrderedDict[Thread, int] = OrderedDict()  # KV kept of threads without a request here
        self.idle_tokens = 0
        self.arrival: simpy.Event | None = None  # while idle
        self.decoding = False  # and may be interrupted
        self.process = env.process(self.run())

    def submit(self, request: Request) -> None:
        """Take a request into the queue."""
        self.queue.append(request)
        if self.arrival is not None:
            self.arrival.succeed()
            self.arrival = None
        elif self.decoding and self.fits(0):
            self.decoding = False
            self.process.interrupt()

    def run(self) -> Process:
        """Serve for ever."""
        while True:
            filled, prefill_s = self.admit()
            if filled:
                yield self.env.timeout(prefill_s)
                self.end_prefill(filled)
            elif self.batch:
                yield from self.decode()
            else:
                self.arrival = self.env.event()
                yield self.arrival

    def need(self, request: Request) -> int:
        """KV tokens that a request reserves."""
        return request.input + request.output + self.spec.kv_sequence_tokens

    def fits(self, filling: int) -> bool:
        """Whether the head of the queue can be admitted beside the batch and `filling` more."""
        if not self.queue or len(self.batch) + filling >= self.spec.max_running:
            return False
        return self.reserved + self.need(self.queue[0]) <= self.spec.kv_tokens

    # Prefill

    def admit(self) -> tuple[list[Request], float]:
        """Move what fits from the queue to a prefill batch; also return the seconds that it takes."""
        spec = self.spec
        filled: list[Request] = []
        taken, seconds = 0, spec.prefill_base_s
        while self.fits(len(filled)):
            request = self.queue[0]
            cached = self.cached(request)
            new = request.input - cached
            if filled and taken + new > spec.max_prefill_tokens:
                break
            filled.append(self.queue.popleft())
            self.reserve(request, cached)
            taken += new
            seconds += spec.prefill_token_s * new + spec.prefill_attention_s * new * (cached + new / 2)
        return filled, seconds

    def cached(self, request: Request) -> int:
        """Leading tokens of a request that are here."""
        thread = request.prefix_thread
        if thread is None:
            return 0
        return min(request.prefix, request.input - 1, self.computed.get(thread, self.idle.get(thread, 0)))

    def reserve(self, request: Request, cached: int) -> None:
        """Give a request its KV; its thread's entry first, then what others leave idle, that of its prefix last."""
        self.idle_tokens -= self.idle.pop(request.thread, 0)
        self.computed[request.thread] = cached
        self.reserved += self.need(request)
        excess = self.reserved + self.idle_tokens - self.spec.kv_tokens
        if excess > 0:
            self.evict(excess, request.prefix_thread)

    def evict(self, tokens: int, spared: Thread | None) -> None:
        """Drop idle KV, the oldest entry first and that of `spared` last, each from its tail."""
        order = [thread for thread in self.idle if thread is not spared]
        if spared is not None and spared in self.idle:
            order.append(spared)
        self.idle_tokens -= tokens
        for thread in order:
            if self.idle[thread] > tokens:
                self.idle[thread] -= tokens
                return
            tokens -= self.idle.pop(thread)

    def end_prefill(self, filled: list[Request]) -> None:
        """Give each its first token."""
        for request in filled:
            self.computed[request.thread] = request.input
            if request.output == 1:
                self.finish(request)
                continue
            heapq.heappush(self.batch, (self.iterations + request.output - 1, self.admissions, request))
            self.admissions += 1
            self.context += request.input + 1

    # Decode

    def decode(self) -> Process:
        """Decode until the first sequence ends, or to the end of the iteration in which a request came that fits."""
        spec, n, start_s = self.spec, len(self.batch), self.env.now
        step_s = spec.step_base_s + spec.step_sequence_s * n + spec.step_context_s * self.context
        step_s += spec.step_expert_s * (1 - (1 - spec.expert_share) ** n)
        growth_s = spec.step_context_s * n
        iterations = self.batch[0][0] - self.iterations
        self.decoding = True
        try:
            yield self.env.timeout(run_s(step_s, growth_s, iterations))
        except simpy.Interrupt:
            iterations = iterations_until(step_s, growth_s, self.env.now - start_s)
            yield self.env.timeout(start_s + run_s(step_s, growth_s, iterations) - self.env.now)
        self.decoding = False
        self.iterations += iterations
        self.context += iterations * n
        while self.batch and self.batch[0][0] == self.iterations:
            request = heapq.heappop(self.batch)[2]
            self.context -= request.input + request.output
            self.finish(request)

    def finish(self, request: Request) -> None:
        """A request has its last token: its context stays as idle KV."""
        thread = request.thread
        self.reserved -= self.need(request)
        del self.computed[thread]
        self.idle[thread] = request.input + request.output
        self.idle_tokens += request.input + request.output
        thread.calls_left -= 1
        self.load -= thread.calls_left == 0
        thread.execution.calls_left -= 1
        if thread.execution.calls_left == 0:
            for member in thread.execution.threads:
                if member.home is not None:
                    member.home.forget(member)
        request.ended.succeed()

    def forget(self, thread: Thread) -> None:
        """Free what a thread keeps here."""
        self.idle_tokens -= self.idle.pop(thread, 0)


def run_s(step_s: float, growth_s: float, iterations: int) -> float:
    """Seconds of a run of iterations whose first takes `step_s` and each later one `growth_s` more."""
    return step_s * iterations + growth_s * iterations * (iterations - 1) / 2


def iterations_until(step_s: float, growth_s: float, elapsed_s: float) -> int:
    """Fewest iterations of a run that end at `elapsed_s` or later."""
    linear_s = step_s - growth_s / 2
    root = 2 * elapsed_s / (linear_s + math.sqrt(linear_s * linear_s + 2 * growth_s * elapsed_s))
    return max(1, math.ceil(root))
