"""The tables of a run's settings that are not the scheduler's. Tables that other parts have already are those."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from gyre.config import LimitSettings
from gyre.trajectory.advantages import Baseline

from ..cells.engine_side import EngineSettings
from ..engines.member import Checks
from ..models.layout import Layout
from ..on_ray.settings import RaySettings
from ..publishing.giving import GiveSettings
from ..training.elastic_core import ElasticSettings
from ..training.elastic_training import CheckpointSettings
from ..training.group_micro_steps import Packing
from ..training.settings import ObjectiveSettings, OptimizerSettings

Cpus = tuple[Annotated[int, Field(ge=0)], ...]


class Table(BaseModel):
    """A table of settings."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class ModelTable(Table):
    """What is trained and served."""

    folder: Path = Field(description="of the model, as Hugging Face has it: weights, tokenizer, chat template")
    template: Path | None = Field(default=None, description="file with a chat template, in place of the model's own")
    template_kwargs: dict[str, Any] = Field(default_factory=dict, description="handed to the chat template")
    tool_call_parser: str = Field(default="", description="SGLang's name for the model's form of tool calls")
    reasoning_parser: str = Field(default="", description="SGLang's name for the model's form of reasoning")
    user_structure: bool = Field(default=False, description="let users' text hold tokens such as <tool_response>")


class CellsTable(Table):
    """The cells: the first is the core, the others are satellites; engines that only serve come after them."""

    count: int = Field(ge=1, le=4096, description="cells that may train, the core included")
    standalone: int = Field(default=0, ge=0, le=4096, description="engines that only serve, beside the cells")
    capacity: int = Field(ge=1, description="executions that a cell serves at once")
    device: Literal["cpu", "cuda"] = Field(default="cuda", description="where engines and trainers run")
    dtype: Literal["float32", "bfloat16"] = Field(default="float32", description="of the trainers' weights")
    attention: str = Field(default="sdpa", description="of the trainers, as gyre.backends.models names them")
    layout: Layout = Field(default=Layout(), description="how a cell's ranks share the model")
    threads: int = Field(default=1, ge=1, description="of each rank's CPU work, and of an engine's on CPU")
    pin: tuple[Cpus, ...] = Field(default=(), description="CPUs of each cell, in their order; left out: all")
    rehearse: bool = Field(default=True, description="move each cell that may train once before the run begins")
    step_s: float = Field(default=900.0, gt=0, description="seconds that a step of a move may take")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineTable(EngineSettings):
    """The SGLang servers."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    flags: tuple[str, ...] = ()  # more for SGLang
    environment: dict[str, str] = field(default_factory=dict)  # more variables
    ready_s: Annotated[float, Field(gt=0)] = 600.0  # for a server to come up
    publishing: GiveSettings = field(default_factory=GiveSettings)
    checks: Checks = field(default_factory=Checks)


class TrainerTable(Table):
    """How weights are trained. The temperature is that of `[sampling]`."""

    objective: ObjectiveSettings = Field(default_factory=ObjectiveSettings, description="the loss")
    optimizer: OptimizerSettings = Field(default_factory=OptimizerSettings, description="what makes the update")
    baseline: Baseline = Field(default=Baseline.MEAN_STD, description="of a group's advantages")
    packing: Packing = Field(default="trees", description="trees: a shared prefix is computed once; or rows")
    elastic: ElasticSettings = Field(default_factory=ElasticSettings, description="how cells share a step")
    checkpoints: CheckpointSettings = Field(default_factory=CheckpointSettings, description="what is made durable")


class TasksTable(Table):
    """What the harness is asked to do."""

    file: Path = Field(description="JSON lines: name, prompt, files, data")
    shuffle: bool = Field(default=True, description="anew in each epoch, by the seed; else as they stand in the file")


class ExecutionLimits(LimitSettings):
    """How far one execution may go."""

    steps: int | None = Field(default=None, ge=1, description="calls of the model; past it the harness is told to stop")
    tokens: int | None = Field(default=None, ge=1, description="input and output of all its calls; past it as above")


class LaunchTable(Table):
    """Where processes are started."""

    kind: Literal["local", "ray"] = Field(default="local", description="local: on this machine; ray: in a cluster")
    ray: RaySettings = Field(default=RaySettings(), description="the cluster, where kind is ray")
