"""A toy cluster that makes legal journals: the real controller, drawn durations, no serving model."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gyre import commands as cmd
from gyre import events as ev
from gyre.cluster import CellKind, CellRole, CellSpec, CellState
from gyre.controller import Controller, ControllerSettings
from gyre.journal import Entry, Header
from gyre.policies import find_policy

HOUR_S = 3600.0


@dataclass
class Toy:
    """Settings of a toy run. Rates and times are in seconds, capacities in executions a cell."""

    policy: str = "elastic"
    policy_settings: dict[str, Any] = field(default_factory=dict)
    steps: int = 6
    groups_per_step: int = 4
    group_size: int = 4
    cells: int = 4
    capacity: int = 8
    gpus: int = 4
    mean_s: float = 1.9 * HOUR_S
    sigma: float = 0.8
    timeout_s: float = 5 * HOUR_S
    samples: int = 4
    sample_tokens: int = 60_000
    tokens_per_s: float = 1500.0
    loss_rate: float = 0.0
    score_failure_rate: float = 0.0
    cell_failures: Sequence[tuple[float, int, float]] = ()  # (time_s, cell, time until it is back)
    seed: int = 0

    def controller(self) -> Controller:
        kind = find_policy(self.policy)
        settings = ControllerSettings(
            steps=self.steps,
            groups_per_step=self.groups_per_step,
            group_size=self.group_size,
            micro_step_tokens=self.sample_tokens,
        )
        return Controller(settings, kind(kind.Settings(**self.policy_settings)))

    def header(self) -> Header:
        settings = {"policy": self.policy, "seed": self.seed, "policy_settings": self.policy_settings}
        return Header({**settings, "training": {"steps": self.steps, "groups_per_step": self.groups_per_step}})


class ToyCluster:
    """Draws how long things take, reports them, and takes the controller's commands."""

    def __init__(self, toy: Toy) -> None:
        self.toy = toy
        self.rng = np.random.default_rng(toy.seed)
        self.now_s = 0.0
        self.version = 0
        self.publishing = False
        self.tie = itertools.count()
        self.heap: list[tuple[float, int, ev.Event]] = []
        kinds = [CellKind.CORE] + [CellKind.SATELLITE] * (toy.cells - 1)
        self.specs = tuple(CellSpec(i, kind, toy.capacity, toy.gpus) for i, kind in enumerate(kinds))
        self.states = [CellState.SERVING] * toy.cells
        self.queue: list[tuple[int, int, int, int]] = []  # (version, step, micro-step, tokens)
        self.held: dict[int, tuple[int, int, int, int]] = {}
        self.busy_s = [0.0] * toy.cells
        self.running: set[int] = set()
        self.metered_s = 0.0

    def at(self, delay_s: float, event_kind: type[ev.Event], *values: Any) -> None:
        time_s = self.now_s + delay_s
        heapq.heappush(self.heap, (time_s, next(self.tie), event_kind(time_s, *values)))

    def journal(self) -> Iterator[Header | Entry]:
        yield self.toy.header()
        controller = self.toy.controller()
        self.at(0.0, ev.RunStarted, self.specs)
        for time_s, cell, away_s in self.toy.cell_failures:
            self.at(time_s, ev.CellFailed, cell)
            self.at(time_s + away_s, ev.CellJoined, cell)
        self.at(600.0, ev.Timer, "meter")
        while self.heap and not controller.stopped:
            self.now_s, _, event = heapq.heappop(self.heap)
            yield from self._meter()
            if isinstance(event, ev.Timer) and event.name == "meter":
                self.at(600.0, ev.Timer, "meter")
                continue
            if not self._happens(event):
                continue
            yield event
            for command in controller.handle(event):
                yield command
                self._obey(command)
            self._claim()

    def _meter(self) -> Iterator[ev.LoadReport]:
        """Every ten minutes each serving cell says how long it was busy: the first most."""
        span_s, self.metered_s = self.now_s - self.metered_s, self.now_s
        serving = [cell for cell, state in enumerate(self.states) if state is CellState.SERVING]
        for rank, cell in enumerate(serving):
            self.busy_s[cell] += span_s * min(1.0, 3.0 * len(self.running) / (self.toy.capacity * (rank + 1)))
        if span_s and self.now_s % 600.0 == 0.0:
            for cell in serving:
                yield ev.LoadReport(self.now_s, cell, 0, 0, 0, self.busy_s[cell], 0.0, 0, 0, 0)

    def _happens(self, event: ev.Event) -> bool:
        """Carry out what the event says; False where a failure made it void."""
        match event:
            case ev.CellChanged(cell=cell, state=state):
                if self.states[cell] is CellState.FAILED:
                    return False
                self.states[cell] = state
            case ev.MicroStepDone(cell=cell, step=step, micro_step=number):
                if self.held.get(cell, (0, -1, -1, 0))[1:3] != (step, number):
                    return False
                del self.held[cell]
            case ev.CellFailed(cell=cell):
                self.states[cell] = CellState.FAILED
                if cell in self.held:
                    heapq.heappush(self.queue, self.held.pop(cell))
                if cell == 0:
                    self.queue.clear()
                    self.held.clear()
                    self.publishing = False
                    self.heap = [
                        row for row in self.heap if not isinstance(row[2], ev.UpdateApplied | ev.WeightsPublished)
                    ]
                    heapq.heapify(self.heap)
            case ev.CellJoined(cell=cell):
                self.states[cell] = CellState.SERVING
            case ev.UpdateApplied(version=version):
                self.version = version
            case ev.ExecutionStarted(execution=execution):
                self.running.add(execution)
            case ev.ExecutionFinished(execution=execution) | ev.ExecutionLost(execution=execution):
                self.running.discard(execution)
            case _:
                pass
        return True

    def _obey(self, command: cmd.Command) -> None:
        match command:
            case cmd.StartExecution(execution=execution):
                self._run(execution)
            case cmd.ScoreExecution(execution=execution, attempt=attempt):
                valid = bool(self.rng.random() >= self.toy.score_failure_rate)
                tokens = tuple(
                    self.rng.integers(self.toy.sample_tokens // 3, self.toy.sample_tokens, self.toy.samples).tolist()
                )
                score = float(self.rng.random()) if valid else None
                self.at(30.0, ev.ExecutionScored, execution, valid, score, tokens if valid else (), attempt)
            case cmd.SwitchRole(cell=cell, role=CellRole.TRAINING):
                self.at(0.0, ev.CellChanged, cell, CellState.TO_TRAINING)
                self.at(8.52, ev.CellChanged, cell, CellState.TRAINING)
            case cmd.SwitchRole(cell=cell):
                self.at(0.0, ev.CellChanged, cell, CellState.TO_SERVING)
                self.at(3.46, ev.CellChanged, cell, CellState.SERVING)
            case cmd.OfferMicroSteps(step=step, version=version, first=first, tokens=tokens):
                for number, count in enumerate(tokens, start=first):
                    heapq.heappush(self.queue, (version, step, number, count))
            case cmd.ApplyUpdate(step=step):
                self.at(20.0, ev.UpdateApplied, step + 1)
            case cmd.PublishWeights(version=version):
                self.at(45.0, ev.WeightsPublished, version)
            case cmd.SetTimer(name=name, at_s=at_s):
                self.at(max(0.0, at_s - self.now_s), ev.Timer, name)
            case _:
                pass

    def _run(self, execution: int) -> None:
        length_s = float(self.rng.lognormal(np.log(self.toy.mean_s) - self.toy.sigma**2 / 2, self.toy.sigma))
        start_s = float(self.rng.uniform(5.0, 60.0))
        self.at(start_s, ev.ExecutionStarted, execution, self.version)
        if self.rng.random() < self.toy.loss_rate:
            self.at(start_s + length_s / 2, ev.ExecutionLost, execution, "host died")
            return
        outcome = "completed" if length_s < self.toy.timeout_s else "overall_timeout"
        tokens = int(min(length_s, self.toy.timeout_s) * 10)
        split = ((self.version, tokens // 2), (self.version, tokens - tokens // 2))
        self.at(start_s + min(length_s, self.toy.timeout_s), ev.ExecutionFinished, execution, outcome, split)

    def _claim(self) -> None:
        for cell, state in enumerate(self.states):
            if state is CellState.TRAINING and cell not in self.held and self.queue:
                held = heapq.heappop(self.queue)
                self.held[cell] = held
                _, step, number, tokens = held
                self.at(0.0, ev.MicroStepClaimed, cell, step, number)
                self.at(tokens / self.toy.tokens_per_s, ev.MicroStepDone, cell, step, number)


def toy_journal(toy: Toy) -> Iterator[Header | Entry]:
    """Yield a whole run's journal."""
    return ToyCluster(toy).journal()
