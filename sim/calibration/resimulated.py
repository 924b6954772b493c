"""A recorded run, simulated again: what it took, what the simulator says that it takes, and the error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gyre.config import LimitSettings, RunSettings, SchedulerSettings
from gyre.events import LoadReport
from gyre.journal import Entry
from gyre.toml_file import validated
from gyre.workload.load import load_program
from gyre.workload.program import Program
from gyre.workload.recorded_run.folder import EVALUATIONS
from gyre.workload.recorded_run.history import RunHistory

from ..hardware_profile import HardwareProfile
from ..run import Run
from .cell_times import CellTimes
from .stretches import Stretch


@dataclass(frozen=True, slots=True)
class RunFigures:
    """What a run came to, from when its cells were up to its last update."""

    wall_s: float
    step_s: tuple[float, ...]
    sampled_tokens: int  # of executions that ended by then
    serving_share: float  # of the time of all engines in which they had requests
    training_share: float  # of the time of all cells in which they had micro-steps


@dataclass(frozen=True, slots=True)
class Compared:
    """One figure, measured and simulated; `error` is relative to what was measured."""

    name: str
    unit: str
    measured: float
    simulated: float
    error: float

    def to_json(self) -> dict[str, Any]:
        """The comparison as JSON-ready values."""
        return asdict(self)


def recorded_figures(history: RunHistory, times: CellTimes, stretches: Sequence[Stretch]) -> RunFigures:
    """Return what a recorded run came to."""
    end_s = history.begun_s + history.wall_s
    engines = sorted({stretch.engine for stretch in stretches})
    busy_s = sum(
        _union_s([one for one in stretches if one.engine == engine], history.begun_s, end_s) for engine in engines
    )
    return _figures(history, times, busy_s / max(1, len(history.cells)))  # a real cell is one engine


def simulated_figures(entries: Sequence[Entry]) -> RunFigures:
    """Return what a simulated run came to."""
    history, times = RunHistory.of(entries), CellTimes()
    busy_s: dict[int, float] = {}
    for entry in entries:
        times.add(entry)
        if isinstance(entry, LoadReport):
            busy_s[entry.cell] = entry.busy_s
    return _figures(history, times, sum(busy_s.values()) / max(1, len(history.cells)))


def _figures(history: RunHistory, times: CellTimes, serving_s: float) -> RunFigures:
    wall_s, gpus = max(history.wall_s, 1e-9), sum(spec.gpus for spec in history.cells)
    end_s = history.begun_s + history.wall_s
    ended = [one for one in history.executions.values() if one.ended_s is not None and one.ended_s <= end_s]
    return RunFigures(
        wall_s=history.wall_s,
        step_s=tuple(history.step_s),
        sampled_tokens=sum(one.sampled_tokens for one in ended),
        serving_share=serving_s / wall_s,
        training_share=times.busy_s / (wall_s * max(1, gpus)),
    )


def _union_s(stretches: Sequence[Stretch], begin_s: float, end_s: float) -> float:
    """Seconds within the span in which at least one of the stretches was on."""
    total, until = 0.0, begin_s
    for arrived_s, ended_s in sorted((one.arrived_s, one.ended_s) for one in stretches):
        begin, end = max(arrived_s, until), min(ended_s, end_s)
        if end > begin:
            total += end - begin
            until = end
    return total


def same_settings(history: RunHistory, trace: Path) -> RunSettings:
    """Return the settings of a simulated run with a recorded run's policy, cells, capacity and groups.

    Raises:
        InputError: the run's journal holds settings that the simulator refuses.
    """
    known = {key: value for key, value in history.settings.items() if key in SchedulerSettings.model_fields}
    limits = known.get("limits") or {}
    known["limits"] = {key: value for key, value in limits.items() if key in LimitSettings.model_fields}
    training = {
        "groups_per_step": history.groups_per_step,
        "group_size": history.group_size,
        **(known.get("training") or {}),
        "steps": max(history.updates_s, default=1),
    }
    values = known | {
        "training": training,
        "workload": {"trace": str(trace), "order": "trace"},
        "cluster": {
            "hardware": str(trace),
            "cells": history.elastic_cells,
            "standalone_engines": len(history.cells) - history.elastic_cells,
            "capacity": history.cells[0].capacity,
            "evaluators": _evaluators(history, trace),
            "rebalance": 0,  # the proxy leaves an execution where it is while there is room
        },
    }
    return validated(RunSettings, values, f"{trace}: its settings").resolved()


def _evaluators(history: RunHistory, trace: Path) -> int | None:
    """Evaluations at once; None where the trace's times of evaluations hold the waits for an evaluator."""
    table = history.settings.get("evaluator")
    return table.get("jobs") if isinstance(table, dict) and (trace / EVALUATIONS).is_file() else None


def simulated(
    settings: RunSettings, hardware: HardwareProfile, program: Program | None = None
) -> tuple[RunFigures, list[Entry]]:
    """Simulate a run with these settings on this hardware; return what it came to, and its journal.

    Raises:
        InputError: the settings cannot work.
    """
    if program is None:
        program = load_program(settings.workload, settings.training, settings.seed)
    entries: list[Entry] = []
    Run(settings, program, hardware).simulate(entries.append)
    return simulated_figures(entries), entries


def compared(measured: RunFigures, predicted: RunFigures) -> tuple[Compared, ...]:
    """Set two runs side by side. The step's error is the mean of |simulated - measured| over the mean step."""
    steps = min(len(measured.step_s), len(predicted.step_s))
    own, other = np.array(measured.step_s[:steps]), np.array(predicted.step_s[:steps])
    mean = float(own.mean()) if steps else 0.0
    step_error = float(np.abs(other - own).mean()) / mean if mean else 0.0
    pairs = (
        ("wall time", "s", measured.wall_s, predicted.wall_s),
        ("tokens sampled", "", float(measured.sampled_tokens), float(predicted.sampled_tokens)),
        ("engines busy", "share", measured.serving_share, predicted.serving_share),
        ("cells training", "share", measured.training_share, predicted.training_share),
    )
    wall, *rest = (Compared(name, unit, own, other, _error(own, other)) for name, unit, own, other in pairs)
    step = Compared("step", "s, mean", mean, float(other.mean()) if steps else 0.0, step_error)
    return (wall, step, *rest)


def _error(measured: float, predicted: float) -> float:
    return (predicted - measured) / measured if measured else 0.0
