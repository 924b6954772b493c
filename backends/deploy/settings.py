"""Settings of a real run: one TOML file, in which unknown keys are refused."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Self

from pydantic import Field, model_validator

from gyre.cluster import CellKind, CellSpec
from gyre.config import SchedulerSettings
from gyre.controller_settings import ControllerSettings
from gyre.errors import InputError
from gyre.scoring.settings import EvaluatorSettings, evaluator_settings
from gyre.toml_file import validated
from gyre.trajectory.selection import Selection

from ..engines.engine import Sampling
from ..proxy.settings import ProxySettings
from ..run.harness_command import HarnessCommand
from ..training.settings import TrainerSettings
from .tables import (
    CellsTable,
    EngineTable,
    ExecutionLimits,
    LaunchTable,
    ModelTable,
    TasksTable,
    TrainerTable,
)

_HERE: Final = "{here}"  # stands for the settings file's folder in commands
_COMMANDS: Final = ("harness", "evaluator")  # tables in which it does
_JOBS: Final = "jobs"
_REMEDY: Final = "docs/run.md lists the keys"

# Keys of tables that other parts share, whose value comes from elsewhere here.
_ELSEWHERE: Final = {
    ("harness", "harness_timeout_s"): "limits.harness_timeout_s",
    ("harness", "overall_timeout_s"): "limits.overall_timeout_s",
    ("harness", "model"): "proxy.model",
    ("selection", "max_paths"): "training.max_paths",
    ("proxy", "sampling"): "the table [sampling]",
    ("proxy", "descriptor"): "proxy.host and proxy.port",
}

# What a run that goes on may be given anew: where and how fast it works, and nothing that it learns from.
OPERATIONAL: Final = frozenset(
    {
        "cells.pin",
        "cells.rehearse",
        "cells.step_s",
        "cells.threads",
        "engine",
        "evaluator.jobs",
        "keep_folders",
        "keep_weights",
        "launch",
        "proxy.admin_port",
        "proxy.bounds",
        "proxy.host",
        "proxy.port",
    }
)

_SOON_S: Final = 1e-3  # below it, what is done at intervals would be all that is done
_RANGES: Final = {  # least and most
    "sampling.max_new_tokens": (1, math.inf),
    "sampling.top_p": (0, 1),
    "sampling.top_k": (-1, math.inf),
    "proxy.port": (0, 65_535),
    "proxy.admin_port": (0, 65_535),
    "harness.farewell_s": (0, math.inf),
    "harness.grace_s": (0, math.inf),
    "harness.limits.cpu_s": (1, math.inf),
    "harness.limits.address_space_bytes": (1, math.inf),
    "harness.limits.file_bytes": (0, math.inf),
    "harness.limits.open_files": (3, math.inf),  # its standard streams
    "engine.drain_s": (0, math.inf),
    "engine.lost_s": (0, math.inf),
    "engine.probe_s": (_SOON_S, math.inf),
    "engine.checks.every_s": (_SOON_S, math.inf),
    "engine.checks.retry_s": (_SOON_S, math.inf),
    "engine.checks.retry_most_s": (_SOON_S, math.inf),
    "engine.checks.stalled_s": (0, math.inf),
}


class DeploySettings(SchedulerSettings):
    """Everything that determines a real run. What the scheduler is told stands here as for a simulated run."""

    limits: ExecutionLimits = ExecutionLimits()
    model: ModelTable
    cells: CellsTable
    engine: EngineTable = Field(default_factory=EngineTable)
    trainer: TrainerTable = Field(default_factory=TrainerTable)
    sampling: Sampling = Sampling(max_new_tokens=32_768)
    selection: Selection = Selection()
    harness: HarnessCommand
    keep_folders: bool = Field(default=False, description="keep what executions leave when their group is done")
    keep_weights: bool = Field(default=False, description="keep every version that was served")
    tasks: TasksTable
    evaluator: dict[str, Any] = Field(description="as `gyre score` reads it, and jobs: evaluations at once")
    proxy: ProxySettings = ProxySettings()
    launch: LaunchTable = LaunchTable()

    @model_validator(mode="before")
    @classmethod
    def _said_elsewhere(cls, values: Any) -> Any:
        if isinstance(values, Mapping):
            for (table, key), place in _ELSEWHERE.items():
                if isinstance(values.get(table), Mapping) and values[table].get(key) is not None:
                    raise ValueError(f"{table}.{key}: is not set here; give {place}")
        return values

    @model_validator(mode="after")
    def _can_work(self) -> Self:
        if not self.sampling.temperature > 0:
            raise ValueError(f"sampling.temperature: {self.sampling.temperature:g}; training needs more than 0")
        _refuse_out_of_range(self)
        pins, cells = len(self.cells.pin), self.cells.count + self.cells.standalone
        if pins not in (0, cells):
            raise ValueError(f"cells.pin: {pins} lists of CPUs for {cells} cells; give one for each, or none")
        return self

    @classmethod
    def of(cls, values: Mapping[str, Any], path: Path) -> Self:
        """Build settings from the content of the file `path`; relative paths in it are to its folder.

        Raises:
            InputError: a key is unknown or a value impossible.
        """
        folder = path.absolute().parent
        given = {name: _with_here(value, str(folder)) if name in _COMMANDS else value for name, value in values.items()}
        settings = validated(cls, given, str(path), _REMEDY)
        settings.evaluator_settings(f"{path}: evaluator")
        return settings.located(folder).resolved()

    def located(self, folder: Path) -> Self:
        """Return the settings with paths that do not depend on the working folder."""
        model, tasks = self.model, self.tasks
        template = None if model.template is None else folder / model.template
        evaluator = self.evaluator_settings().located(folder).model_dump(mode="json", exclude_none=True)
        return self.model_copy(
            update={
                "model": model.model_copy(update={"folder": folder / model.folder, "template": template}),
                "tasks": tasks.model_copy(update={"file": folder / tasks.file}),
                "evaluator": {**evaluator, _JOBS: self.evaluator_jobs},
            }
        )

    def header(self) -> dict[str, Any]:
        """Return all keys, ready for TOML and JSON: what the journal of the run begins with.

        What `_ELSEWHERE` names is left out, so that it can be read again.
        """
        values = self.model_dump(mode="json", exclude_none=True)
        for table, key in _ELSEWHERE:
            values[table].pop(key, None)
        return values

    @property
    def evaluator_jobs(self) -> int:
        """Evaluations at once."""
        return int(self.evaluator.get(_JOBS, 4))

    def evaluator_settings(self, where: str = "evaluator") -> EvaluatorSettings:
        """Return what judges.

        Raises:
            InputError: its table is none.
        """
        values = dict(self.evaluator)
        jobs = values.pop(_JOBS, 1)
        if not isinstance(jobs, int) or isinstance(jobs, bool) or jobs < 1:
            raise InputError(f"{where}: {_JOBS}: {jobs!r}; give a number of evaluations at once, 1 or more")
        return evaluator_settings(values, where)

    def controller_settings(self) -> ControllerSettings:
        """See `SchedulerSettings.controller_settings`. A restart may train again what no checkpoint holds."""
        return replace(super().controller_settings(), keeps_until_checkpoint=True)

    @property
    def harness_command(self) -> HarnessCommand:
        """The harness, with its limits of time."""
        return replace(
            self.harness,
            model=self.proxy.model,
            harness_timeout_s=self.limits.harness_timeout_s,
            overall_timeout_s=self.limits.overall_timeout_s,
        )

    @property
    def trainer_settings(self) -> TrainerSettings:
        """The trainer, which must divide logits by the temperature that sampled."""
        return TrainerSettings(
            objective=self.trainer.objective,
            optimizer=self.trainer.optimizer,
            temperature=self.sampling.temperature,
        )

    @property
    def path_selection(self) -> Selection:
        """Which paths are trained."""
        return self.selection.model_copy(update={"max_paths": self.training.max_paths})

    @property
    def proxy_settings(self) -> ProxySettings:
        """The proxy, with the sampling."""
        return replace(self.proxy, sampling=self.sampling)

    @property
    def specs(self) -> tuple[CellSpec, ...]:
        """The cells in their order, core first."""
        cells = self.cells
        kinds = [CellKind.CORE, *[CellKind.SATELLITE] * (cells.count - 1), *[CellKind.STANDALONE] * cells.standalone]
        return tuple(CellSpec(at, kind, cells.capacity, cells.layout.ranks) for at, kind in enumerate(kinds))

    def cpus(self, cell: int) -> tuple[int, ...]:
        """Return the CPUs of a cell, none where it may use all."""
        return self.cells.pin[cell] if self.cells.pin else ()


def _refuse_out_of_range(settings: DeploySettings) -> None:
    """Refuse numbers of tables that other parts share, whose own types take any.

    Raises:
        ValueError: the first that is impossible.
    """
    for name, (least, most) in _RANGES.items():
        value: Any = settings
        for part in name.split("."):
            value = getattr(value, part)
        if value is not None and not least <= value <= most:
            to = f"{least:g} or more" if most == math.inf else f"{least:g} to {most:g}"
            raise ValueError(f"{name}: {value:g}; give {to}")
    if settings.sampling.top_k == 0:
        raise ValueError("sampling.top_k: 0; give -1 for all tokens, or 1 or more")
    if settings.sampling.min_new_tokens != 0:
        # SGLang samples no end before them, and its log-probabilities are of what is left: the trainer's are of all.
        raise ValueError(
            f"sampling.min_new_tokens: {settings.sampling.min_new_tokens}; engine and trainer would disagree on "
            "log-probabilities; leave it 0"
        )
    if settings.sampling.top_p == 0:
        raise ValueError("sampling.top_p: 0; give more than 0")


def _with_here(value: Any, here: str) -> Any:
    if isinstance(value, str):
        return value.replace(_HERE, here)
    if isinstance(value, list):
        return [_with_here(one, here) for one in value]
    if isinstance(value, dict):
        return {key: _with_here(one, here) for key, one in value.items()}
    return value
