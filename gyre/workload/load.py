"""From the settings of a run to the program that it replays."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from ..config import TrainingSettings, WorkloadSettings
from .compile import compile_program
from .findings import Report
from .human_waits import replace_human_waits
from .importers import import_trace
from .profiles import load_profile
from .profiles.generate import generate
from .program import Program
from .trace import Trace

MOST_DRAWN_GROUPS: Final = 256  # later groups of a run repeat these in a new order


def load_program(workload: WorkloadSettings, training: TrainingSettings, seed: int) -> Program:
    """Return the workload of a run as a program.

    A profile is drawn with the run's seed; a trace is read, or imported from a recording, and people's waits are
    replaced.

    Raises:
        InputError: the workload cannot be found, read or replayed.
    """
    if workload.profile is not None:
        profile = load_profile(workload.profile)
        sized = profile.training.model_copy(update={"group_size": training.group_size})
        needed = min(training.steps * training.groups_per_step, MOST_DRAWN_GROUPS)
        trace = generate(profile.model_copy(update={"training": sized}), groups=workload.groups or needed, seed=seed)
    else:
        assert workload.trace is not None
        trace, _ = load_trace(Path(workload.trace), seed=seed)
    return compile_program(trace, max_paths=training.max_paths, seed=seed)


def repeated_groups(program: Program, group_size: int) -> int:
    """Number of groups with fewer than `group_size` members: a run of that size replays some of these members twice."""
    members = np.bincount(program.group, minlength=len(program.group_ids))
    return int(np.count_nonzero((members > 0) & (members < group_size)))


def load_trace(path: Path, *, seed: int) -> tuple[Trace, Report]:
    """Read a trace folder, or import a recording; replace the waits of people. Report what was found and repaired.

    Raises:
        InputError: the path holds no trace, or one that cannot be replayed.
    """
    trace, report = import_trace(path)
    if trace.executions["human_in_loop"].any():
        trace, replaced = replace_human_waits(trace, seed=seed)
        report += replaced
    return trace, report
