"""The abstract cluster: cells, the roles they take and the moves between them.

A *cell* is a fixed set of GPUs that holds one complete model replica. A cluster, simulated or real, owns the cells; it
reports `gyre.events` and takes `gyre.commands`. Nothing here knows a clock or does I/O.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .commands import Command


class CellKind(StrEnum):
    """What a cell may do over a run."""

    CORE = "core"  # holds the authoritative weights and the only optimizer state
    SATELLITE = "satellite"  # serves or trains
    STANDALONE = "standalone"  # serves only


class CellRole(StrEnum):
    """What a cell is asked to do."""

    SERVING = "serving"
    TRAINING = "training"


class CellState(StrEnum):
    """Where a cell is between its roles."""

    SERVING = "serving"
    DRAINING = "draining"
    TO_TRAINING = "to_training"
    TRAINING = "training"
    TO_SERVING = "to_serving"
    FAILED = "failed"


CELL_MOVES: Final[dict[CellState, frozenset[CellState]]] = {
    CellState.SERVING: frozenset({CellState.DRAINING, CellState.TO_TRAINING, CellState.FAILED}),
    CellState.DRAINING: frozenset({CellState.TO_TRAINING, CellState.SERVING, CellState.FAILED}),
    CellState.TO_TRAINING: frozenset({CellState.TRAINING, CellState.FAILED}),
    CellState.TRAINING: frozenset({CellState.TO_SERVING, CellState.FAILED}),
    CellState.TO_SERVING: frozenset({CellState.SERVING, CellState.FAILED}),
    CellState.FAILED: frozenset({CellState.SERVING, CellState.TRAINING}),
}


@dataclass(frozen=True, slots=True)
class CellSpec:
    """One cell as the cluster describes it at the start of a run.

    `capacity` is the number of executions that the cell serves at the stated share of its unloaded decode speed.
    """

    cell: int
    kind: CellKind
    capacity: int
    gpus: int
    state: CellState = CellState.SERVING


class Cluster(Protocol):
    """What a driver of the controller can do: carry out commands, in order, and report events in return."""

    def execute(self, commands: Sequence[Command]) -> None:
        """Carry out commands in the order given."""
