"""Journals of runs of which everything that the watch looks at is chosen by the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from gyre import commands as cmd
from gyre import events as ev
from gyre.cluster import CellKind, CellSpec
from gyre.journal import Entry, Header

CELLS = (CellSpec(cell=0, kind=CellKind.CORE, capacity=64, gpus=8),)
STEP_S = 1000.0


@dataclass
class Plan:
    """Rates of a run by step; each function takes the step. Executions of a group share a draw of difficulty."""

    steps: int = 30
    groups: int = 16
    size: int = 8
    seed: int = 0
    completion: Callable[[int], float] = lambda step: 0.8
    score: Callable[[int], float] = lambda step: 0.4
    checks: dict[str, Callable[[int], float]] = field(default_factory=dict)
    tool_calls: Callable[[int], float] = lambda step: 20.0
    valid: Callable[[int], float] = lambda step: 1.0
    kl: Callable[[int], float] | None = None
    staleness: int = 0
    spread: float = 0.15  # of a group's rate around the step's
    tasks: int = 64
    dropped_over_s: float | None = None  # executions that run for longer meet the overall time-out, at 450 s


def planned_journal(plan: Plan) -> Iterator[Header | Entry]:
    """Yield a journal in which every step trains the groups that were dispatched for it."""
    rng = np.random.default_rng(plan.seed)
    yield Header({"policy": "colocate", "seed": plan.seed})
    yield ev.RunStarted(0.0, CELLS)
    execution = 0
    for step in range(plan.steps):
        start_s = step * STEP_S
        first = step * plan.groups
        entries: list[Entry] = []
        for group in range(first, first + plan.groups):
            members = tuple(range(execution, execution + plan.size))
            execution += plan.size
            version = max(0, step - plan.staleness)
            entries.append(cmd.DispatchGroup(start_s, group, version, members, group % plan.tasks))
            entries += _group(plan, rng, step, start_s, members)
        yield from sorted(entries, key=lambda entry: entry.time_s)
        yield cmd.OpenStep(start_s + 600.0, step)
        for number, group in enumerate(range(first, first + plan.groups)):
            yield cmd.OfferMicroSteps(start_s + 600.0, step, group, max(0, step - plan.staleness), number, ((100,),))
        metrics = () if plan.kl is None else (("kl", plan.kl(step)), ("loss", 0.1))
        yield ev.UpdateApplied(start_s + STEP_S - 1.0, step + 1, metrics)
    yield cmd.StopRun(plan.steps * STEP_S, plan.steps)


def _group(
    plan: Plan, rng: np.random.Generator, step: int, start_s: float, members: tuple[int, ...]
) -> Iterator[Entry]:
    easy = float(rng.normal(0.0, plan.spread))
    for member in members:
        yield cmd.StartExecution(start_s, member)
        yield ev.ExecutionStarted(start_s, member, step)
    for member in members:
        length_s = min(450.0, 30.0 * float(rng.lognormal(1.0, 0.7)))
        end_s = start_s + length_s
        done = rng.random() < plan.completion(step) + easy
        calls = int(rng.poisson(max(0.0, plan.tool_calls(step))))
        outcome = "completed" if done else "harness_timeout"
        if plan.dropped_over_s is not None and length_s > plan.dropped_over_s:
            yield ev.ExecutionFinished(start_s + 450.0, member, "overall_timeout", ((step, 4500),), calls)
            continue
        yield ev.ExecutionFinished(end_s, member, outcome, ((step, int(10 * (end_s - start_s))),), calls)
        yield cmd.ScoreExecution(end_s, member, 0)
        valid = bool(rng.random() < plan.valid(step))
        score = float(rng.random() < plan.score(step) + easy)
        checks = tuple((name, float(rng.random() < rate(step) + easy)) for name, rate in plan.checks.items())
        yield ev.ExecutionScored(
            end_s + 50.0, member, valid, score if valid else None, (100,) if valid else (), 0,
            "" if valid else "timed out", "", checks if valid else (),
        )  # fmt: skip
