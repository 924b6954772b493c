"""Every step, from its opening to the published weights, and its micro-steps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import polars as pl

from .group_log import GroupRow

STEPS_SCHEMA: Final[dict[str, pl.DataType]] = {
    "step": pl.Int64(),
    "opened_s": pl.Float64(),
    "closed_s": pl.Float64(),  # the join window
    "applied_s": pl.Float64(),  # the update began
    "updated_s": pl.Float64(),
    "published_s": pl.Float64(),  # null unless this step's version was published
    "duration_s": pl.Float64(),  # since the end of the step before, or the run's start; publish included
    "groups": pl.Int64(),
    "micro_steps": pl.Int64(),
    "cells": pl.Int64(),  # that returned a micro-step
    "tokens": pl.Int64(),
    "staleness_mean": pl.Float64(),
    "staleness_max": pl.Int64(),
}
MICRO_STEPS_SCHEMA: Final[dict[str, pl.DataType]] = {
    "cell": pl.Int64(),
    "step": pl.Int64(),
    "micro_step": pl.Int64(),
    "start_s": pl.Float64(),
    "end_s": pl.Float64(),
    "tokens": pl.Int64(),
    "returned": pl.Boolean(),  # false where the cell failed, or the run ended, first
}


@dataclass(slots=True)
class StepRow:
    """One step so far."""

    step: int
    opened_s: float
    closed_s: float | None = None
    applied_s: float | None = None
    updated_s: float | None = None
    published_s: float | None = None
    groups: dict[int, GroupRow] = field(default_factory=dict)
    tokens: dict[int, int] = field(default_factory=dict)  # by micro-step
    cells: set[int] = field(default_factory=set)

    def restart(self) -> None:
        """Forget what was offered: the sum of gradients was lost and all groups are offered again."""
        for group in self.groups.values():
            group.trained_tokens = 0
        self.closed_s = self.applied_s = None
        self.groups.clear()
        self.tokens.clear()
        self.cells.clear()

    @property
    def end_s(self) -> float | None:
        """When the step was over; its weights published, where they were."""
        return self.updated_s if self.published_s is None else self.published_s


def _rows(steps: Iterable[StepRow], start_s: float) -> Iterable[tuple[object, ...]]:
    before_s = start_s
    for step in steps:
        end_s = step.end_s
        stale = [step.step - group.version for group in step.groups.values()]
        yield (
            step.step,
            step.opened_s,
            step.closed_s,
            step.applied_s,
            step.updated_s,
            step.published_s,
            None if end_s is None else end_s - before_s,
            len(step.groups),
            len(step.tokens),
            len(step.cells),
            sum(step.tokens.values()),
            sum(stale) / len(stale) if stale else None,
            max(stale, default=None),
        )
        before_s = before_s if end_s is None else end_s


def steps_frame(steps: Iterable[StepRow], start_s: float) -> pl.DataFrame:
    """Return steps (`STEPS_SCHEMA`) in order.

    Durations of finished steps sum to the end of the last one less `start_s`.
    """
    return pl.DataFrame(list(_rows(steps, start_s)), schema=STEPS_SCHEMA, orient="row")


class MicroStepLog:
    """Which cell ran which micro-step, and when."""

    def __init__(self) -> None:
        self._running: dict[tuple[int, int, int], tuple[float, int]] = {}
        self._rows: list[tuple[int, int, int, float, float, int, bool]] = []

    def claim(self, now_s: float, key: tuple[int, int, int], tokens: int) -> bool:
        """A cell took a micro-step; `key` is (cell, step, micro-step). False if it holds it already."""
        free = key not in self._running
        self._running[key] = (now_s, tokens)
        return free

    def holds(self, step: int) -> bool:
        """Whether a micro-step of `step` is taken and not returned."""
        return any(key[1] == step for key in self._running)

    def done(self, now_s: float, key: tuple[int, int, int]) -> bool:
        """A cell returned it; False if it had not taken it."""
        if key not in self._running:
            return False
        start_s, tokens = self._running.pop(key)
        self._rows.append((*key, start_s, now_s, tokens, True))
        return True

    def fail(self, now_s: float, cell: int) -> None:
        """A cell was lost with the micro-steps that it had taken."""
        self._give_up(now_s, [key for key in self._running if key[0] == cell])

    def void(self, now_s: float, step: int) -> None:
        """A step begins again; what cells had taken of it is of no use."""
        self._give_up(now_s, [key for key in self._running if key[1] == step])

    def _give_up(self, now_s: float, keys: list[tuple[int, int, int]]) -> None:
        for key in keys:
            start_s, tokens = self._running.pop(key)
            self._rows.append((*key, start_s, now_s, tokens, False))

    def frame(self, end_s: float) -> pl.DataFrame:
        """Return micro-steps (`MICRO_STEPS_SCHEMA`) by start."""
        running = [(*key, start_s, end_s, tokens, False) for key, (start_s, tokens) in self._running.items()]
        rows = [row for row in (*self._rows, *running) if row[3] <= end_s]
        frame = pl.DataFrame(rows, schema=MICRO_STEPS_SCHEMA, orient="row")
        return frame.sort("start_s", "cell", maintain_order=True)
