"""Fits a hardware profile to a recorded run, and says how well the simulator then tells what the run took."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from gyre.errors import InputError
from gyre.journal import JOURNAL_FILE
from gyre.workload.recorded_run.folder import RunFolder
from gyre.workload.recorded_run.history import RunHistory

from ..hardware_profile import HardwareProfile
from .cell_times import CellTimes
from .engine_fit import EngineTimes, fit_engines
from .engine_load import engine_loads
from .measured import Figure, Measured
from .profile import profile_of
from .resimulated import Compared, RunFigures, compared, recorded_figures, same_settings, simulated
from .stretches import Stretches, stretches_of

_FEW: Final = 20  # replies from which a, b and c can hardly be told apart


@dataclass(frozen=True, slots=True)
class Calibration:
    """What a run's records say of its hardware."""

    profile: HardwareProfile
    figures: tuple[Figure, ...]
    notes: tuple[str, ...]
    recorded: RunFigures
    engine_error: float  # median share by which a reply's fitted decode time is off


def calibrate(path: Path, base: HardwareProfile | None = None, model: Mapping[str, float] | None = None) -> Calibration:
    """Fit a profile to the run in a folder; `base` and `model` as in `profile_of`.

    Raises:
        InputError: the folder is no real run's, or says too little of its engines.
    """
    with RunFolder(path) as run:
        times = CellTimes()
        for entry in run.entries():
            times.add(entry)
        stretches = stretches_of(run)
        history = run.history
    engines = fit_engines(engine_loads(stretches.all), times.publish_spans)
    if engines is None:
        raise InputError(_nothing(path, stretches))
    measured = Measured()
    measured.engines(engines)
    measured.cells(times)
    return Calibration(
        profile=profile_of(measured, history, path.resolve().name, base, model),
        figures=tuple(measured.figures),
        notes=tuple(_notes(history, stretches, engines)),
        recorded=recorded_figures(history, times, stretches.all),
        engine_error=engines.error,
    )


def predicted_again(path: Path, calibration: Calibration) -> tuple[Compared, ...]:
    """Simulate a calibrated run with its own policy, workload and cells; return what was measured beside it.

    Raises:
        InputError: the run cannot be replayed.
    """
    with RunFolder(path) as run:
        settings = same_settings(run.history, path)
    figures, _ = simulated(settings, calibration.profile)
    return compared(calibration.recorded, figures)


def measured_hardware(path: Path) -> HardwareProfile:
    """Return the profile of the run in a folder; it is fitted once as long as the journal does not change.

    Raises:
        InputError: as `calibrate`.
    """
    try:
        stamp = (path / JOURNAL_FILE).stat().st_mtime_ns
    except OSError as error:
        raise InputError(f"{path}: holds no {JOURNAL_FILE}; give the folder of a run that `gyre run` made") from error
    return _measured(path.resolve(), stamp)


@lru_cache(maxsize=8)
def _measured(path: Path, stamp: int) -> HardwareProfile:
    return calibrate(path).profile


def _nothing(path: Path, stretches: Stretches) -> str:
    if stretches.untimed and not stretches.all:
        return (
            f"{path}: its {stretches.untimed:,} calls do not say which engine they ran on and when tokens came, as an "
            "older gyre wrote them; record a run with this one"
        )
    return f"{path}: holds no reply of two tokens or more that one engine gave; calibrate on a longer run"


def _notes(history: RunHistory, stretches: Stretches, engines: EngineTimes) -> list[str]:
    notes = []
    if not history.stopped:
        notes.append(f"The run has not come to its end: only its first {len(history.updates_s):,} steps are measured.")
    if history.resumed:
        notes.append(f"The run was taken up again {history.resumed} times: its wall time holds what was lost between.")
    if stretches.untimed:
        notes.append(f"{stretches.untimed:,} calls say nothing of their engines: engines look idler than they were.")
    if engines.replies < _FEW:
        notes.append(f"Only {engines.replies} replies could be measured; a, b and c are hardly told apart by so few.")
    return notes


def to_json(calibration: Calibration, errors: tuple[Compared, ...]) -> dict[str, Any]:
    """Return all of it as JSON-ready values."""
    return {
        "profile": calibration.profile.model_dump(exclude_none=True),
        "figures": [figure.to_json() for figure in calibration.figures],
        "notes": list(calibration.notes),
        "engine_error": calibration.engine_error,
        "simulated_again": [error.to_json() for error in errors],
    }
