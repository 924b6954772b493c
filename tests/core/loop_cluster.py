"""A cluster for tests: executions of given length, training of given speed, no serving model; as plain as can be."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from gyre import commands as cmd
from gyre import events as ev
from gyre.cluster import CellKind, CellRole, CellSpec, CellState
from gyre.controller import Controller
from gyre.journal import Entry


def cells(count: int, capacity: int, standalone: int = 0) -> tuple[CellSpec, ...]:
    """One core, satellites, and standalone engines, all of one capacity."""
    kinds = [CellKind.CORE] + [CellKind.SATELLITE] * (count - 1) + [CellKind.STANDALONE] * standalone
    return tuple(CellSpec(index, kind, capacity, 8) for index, kind in enumerate(kinds))


@dataclass
class LoopCluster:
    """Runs a controller on a heap of (time, order, callback)."""

    controller: Controller
    specs: tuple[CellSpec, ...]
    length_s: Callable[[int], float]
    outcome: Callable[[int], str] = lambda execution: "completed"
    valid: Callable[[int, int], bool] = lambda execution, attempt: True
    hangs: Callable[[int, int], bool] = lambda execution, attempt: False
    score: Callable[[int], float] = lambda execution: 1.0
    scoring_s: float = 0.0
    sample_tokens: int = 100
    train_s_per_token: float = 0.001
    update_s: float = 0.0
    publish_s: float = 0.0
    switch_s: float = 0.0
    checkpoint_every: int = 0  # updates; 0: never
    check: Callable[[Controller, ev.Event, Sequence[cmd.Command]], None] = lambda *_: None
    journal: list[Entry] = field(default_factory=list)
    stopped: bool = False
    now: float = 0.0

    def __post_init__(self) -> None:
        self.heap: list[tuple[float, int, Callable[[], None]]] = []
        self.count = 0
        self.inbox: deque[ev.Event] = deque()
        self.busy: set[int] = set()
        self.training: set[int] = set()
        self.queue: list[tuple[int, int, int]] = []
        self.step = 0

    def run(self) -> list[Entry]:
        return self.go_on(ev.RunStarted(0.0, self.specs))

    def resume(self, version: int) -> list[Entry]:
        """Go on with a controller and a journal that a cluster before this one left; nothing runs any more."""
        self.now = self.controller.time_s
        return self.go_on(ev.RunResumed(self.now, version, self.specs))

    def go_on(self, event: ev.Event) -> list[Entry]:
        self.report(event)
        while not self.stopped:
            self.now, _, callback = heapq.heappop(self.heap)
            callback()
        return self.journal

    def after(self, seconds: float, callback: Callable[[], None]) -> None:
        self.count += 1
        heapq.heappush(self.heap, (self.now + seconds, self.count, callback))

    def report(self, event: ev.Event) -> None:
        self.inbox.append(event)
        if len(self.inbox) > 1:
            return
        while self.inbox and not self.stopped:
            event = self.inbox[0]
            commands = self.controller.handle(event)
            self.journal += [event, *commands]
            self.check(self.controller, event, commands)
            for command in commands:
                getattr(self, type(command).__name__)(command)
            self.inbox.popleft()

    def _later(self, seconds: float, kind: type[ev.Event], *values: Any) -> None:
        self.after(seconds, lambda: self.report(kind(self.now, *values)))

    def DispatchGroup(self, c: cmd.DispatchGroup) -> None:  # noqa: N802
        pass

    # What is reported of a cancelled execution all the same must change nothing.
    DropGroup = ReleaseGroup = AddExecutions = CloseJoinWindow = CancelExecution = DispatchGroup

    def SetTimer(self, c: cmd.SetTimer) -> None:  # noqa: N802
        self._later(c.at_s - self.now, ev.Timer, c.name)

    def StartExecution(self, c: cmd.StartExecution) -> None:  # noqa: N802
        self.report(ev.ExecutionStarted(self.now, c.execution, self.controller.published_version))
        length_s, outcome = self.length_s(c.execution), self.outcome(c.execution)
        if outcome == "lost":
            self._later(length_s, ev.ExecutionLost, c.execution, "its host died")
        else:
            self._later(length_s, ev.ExecutionFinished, c.execution, outcome, ((0, 10),))

    def ScoreExecution(self, c: cmd.ScoreExecution) -> None:  # noqa: N802
        if self.hangs(c.execution, c.attempt):
            return
        valid = self.valid(c.execution, c.attempt)
        samples = (self.sample_tokens,) if valid else ()
        score = self.score(c.execution) if valid else None
        self._later(self.scoring_s, ev.ExecutionScored, c.execution, valid, score, samples, c.attempt)

    def SwitchRole(self, c: cmd.SwitchRole) -> None:  # noqa: N802
        on_way, there = {
            CellRole.TRAINING: (CellState.TO_TRAINING, CellState.TRAINING),
            CellRole.SERVING: (CellState.TO_SERVING, CellState.SERVING),
        }[c.role]
        self.training.discard(c.cell)
        self.report(ev.CellChanged(self.now, c.cell, on_way))
        self.after(self.switch_s, lambda: self.arrive(c.cell, there))

    def arrive(self, cell: int, state: CellState) -> None:
        self.report(ev.CellChanged(self.now, cell, state))
        if state is CellState.TRAINING:
            self.training.add(cell)
            self.claim()

    def OpenStep(self, c: cmd.OpenStep) -> None:  # noqa: N802
        self.step, self.queue = c.step, []

    def OfferMicroSteps(self, c: cmd.OfferMicroSteps) -> None:  # noqa: N802
        for place, tokens in enumerate(c.tokens):
            heapq.heappush(self.queue, (c.version, c.first + place, tokens))
        self.claim()

    def claim(self) -> None:
        for cell in sorted(self.training - self.busy):
            if self.queue:
                _, number, tokens = heapq.heappop(self.queue)
                self.busy.add(cell)
                self.report(ev.MicroStepClaimed(self.now, cell, self.step, number))
                self.after(tokens * self.train_s_per_token, lambda cell=cell, number=number: self.done(cell, number))  # type: ignore[misc]

    def done(self, cell: int, number: int) -> None:
        self.busy.discard(cell)
        self.report(ev.MicroStepDone(self.now, cell, self.step, number))
        self.claim()

    def ApplyUpdate(self, c: cmd.ApplyUpdate) -> None:  # noqa: N802
        self._later(self.update_s, ev.UpdateApplied, c.step + 1)
        if self.checkpoint_every and (c.step + 1) % self.checkpoint_every == 0:
            self._later(self.update_s, ev.CheckpointSaved, c.step + 1)

    def PublishWeights(self, c: cmd.PublishWeights) -> None:  # noqa: N802
        self._later(self.publish_s, ev.WeightsPublished, c.version)

    def StopRun(self, c: cmd.StopRun) -> None:  # noqa: N802
        self.stopped = True
