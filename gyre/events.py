"""What a cluster reports to the controller. Every event is a frozen dataclass with a time (seconds) and a JSON form."""

from __future__ import annotations

from dataclasses import dataclass

from .cluster import CellSpec, CellState


@dataclass(frozen=True, slots=True)
class Event:
    """Base of all events; `time_s` is the cluster's clock, in seconds since the run began."""

    time_s: float


@dataclass(frozen=True, slots=True)
class RunStarted(Event):
    """The cluster is up, with these cells in their fixed order, core first."""

    cells: tuple[CellSpec, ...]


@dataclass(frozen=True, slots=True)
class ExecutionStarted(Event):
    """The harness of an execution is running; `version` is the weight version that is served now."""

    execution: int
    version: int


@dataclass(frozen=True, slots=True)
class ExecutionFinished(Event):
    """An execution ended. `outcome` is a `gyre.outcome.Outcome`.

    `version_tokens` holds the tokens that the policy sampled under each weight version, oldest first:
    ((version, tokens), ...).
    """

    execution: int
    outcome: str
    version_tokens: tuple[tuple[int, int], ...]
    tool_calls: int = 0  # that the policy made


@dataclass(frozen=True, slots=True)
class ExecutionScored(Event):
    """An evaluation came back. `sample_tokens`: lengths of the paths selected for training, none if not valid.

    `reference` names the state that was judged, `checks` are the rules that were looked at, as (name, share passed).
    """

    execution: int
    valid: bool
    score: float | None
    sample_tokens: tuple[int, ...]
    attempt: int = 0  # that of the `ScoreExecution` which it answers
    reason: str = ""  # why it is not valid
    reference: str = ""
    checks: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class ExecutionLost(Event):
    """An execution ended without anything to score (container lost, host died)."""

    execution: int
    reason: str


@dataclass(frozen=True, slots=True)
class LoadReport(Event):
    """A cell's serving meters since the run began; the last word on how busy a serving cell was.

    `busy_s` is time with at least one request in flight (summed over engines, divided by the number of engines).
    """

    cell: int
    running: int
    waiting: int
    kv_tokens: int
    busy_s: float
    prefill_s: float
    decoded_tokens: int
    prefilled_tokens: int
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class CellChanged(Event):
    """A cell entered `state`."""

    cell: int
    state: CellState


@dataclass(frozen=True, slots=True)
class TransferDone(Event):
    """A cell has done a step of a move, or its part of a publish, in so many seconds. Nothing follows from it.

    `step` is drain, release, load, offload, restore or admit; reset or revive after a failure; export (the core) or
    publish (each engine) when new weights are given out. It is `rehearsed` where the cell moved before there was work,
    to see that it can.
    """

    cell: int
    step: str
    seconds: float
    rehearsed: bool = False


@dataclass(frozen=True, slots=True)
class CellFailed(Event):
    """A cell is gone; micro-steps that it had claimed and not returned are in the queue again."""

    cell: int


@dataclass(frozen=True, slots=True)
class CellJoined(Event):
    """A failed cell is back, serving."""

    cell: int


@dataclass(frozen=True, slots=True)
class MicroStepClaimed(Event):
    """A training cell took a micro-step from the queue."""

    cell: int
    step: int
    micro_step: int


@dataclass(frozen=True, slots=True)
class MicroStepDone(Event):
    """A training cell returned a micro-step's gradient to the core."""

    cell: int
    step: int
    micro_step: int


@dataclass(frozen=True, slots=True)
class UpdateApplied(Event):
    """The optimizer made its update; the core now holds weights `version`.

    `metrics` are what the trainer says of it, as (name, value): `kl`, `loss`, `grad_norm`, ...
    """

    version: int
    metrics: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class CheckpointSaved(Event):
    """Weights and optimizer state of `version` are durable: a restart needs no samples of the updates before."""

    version: int


@dataclass(frozen=True, slots=True)
class RunResumed(Event):
    """The controller was rebuilt from its journal and the cluster is up again, with nothing running on it.

    `version` is what the trainer has loaded; updates after it are to be made again. What is open is commanded again;
    serving engines hold what was published last or `version`, and where that is older they are given it.
    """

    version: int
    cells: tuple[CellSpec, ...]


@dataclass(frozen=True, slots=True)
class WeightsPublished(Event):
    """Every serving engine holds weights `version`."""

    version: int


@dataclass(frozen=True, slots=True)
class Timer(Event):
    """A timer set by the controller rang."""

    name: str
