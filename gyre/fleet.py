"""The cells as the controller knows them: their states, the roles they were asked to take, and their capacity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from .cluster import CELL_MOVES, CellKind, CellRole, CellSpec, CellState
from .errors import InputError
from .groups import IllegalMoveError

_HEADED_FOR_TRAINING = frozenset({CellState.DRAINING, CellState.TO_TRAINING, CellState.TRAINING})


@dataclass(slots=True)
class Cell:
    """One cell; `role` is what it was last asked to be, `state` what it is."""

    spec: CellSpec
    state: CellState
    role: CellRole

    @property
    def index(self) -> int:
        """Its place in the fixed order, core first."""
        return self.spec.cell

    @property
    def elastic(self) -> bool:
        """Whether it may train at all."""
        return self.spec.kind is not CellKind.STANDALONE

    @property
    def serving(self) -> bool:
        """Whether it admits requests and was not asked to leave."""
        return self.state is CellState.SERVING and self.role is CellRole.SERVING

    @property
    def training(self) -> bool:
        """Whether it can claim micro-steps."""
        return self.state is CellState.TRAINING and self.role is CellRole.TRAINING


@dataclass(slots=True)
class Fleet:
    """All cells in their fixed order, core first, with sums that a policy reads often."""

    cells: list[Cell] = field(default_factory=list)
    serving_capacity: int = 0  # executions, over cells that serve and were not asked to leave (C_R)
    training_cells: int = 0
    elastic_cells: tuple[Cell, ...] = ()  # those that may train, core first
    standalone_capacity: int = 0  # executions, over standalone engines that serve now

    def start(self, specs: Sequence[CellSpec]) -> None:
        """Take the cells of a run that begins or goes on, as the cluster describes them.

        Raises:
            InputError: there is none, or the first is not the core.
        """
        if not specs or specs[0].kind is not CellKind.CORE:
            raise InputError("a run needs cells, the core first")
        self.cells.clear()
        for spec in specs:
            role = CellRole.TRAINING if spec.state in _HEADED_FOR_TRAINING else CellRole.SERVING
            self.cells.append(Cell(spec, spec.state, role))
        self.elastic_cells = tuple(cell for cell in self.cells if cell.elastic)
        self._sum()

    def cell(self, index: int) -> Cell:
        """Return a cell; raise IllegalMoveError where there is none of this number."""
        if not 0 <= index < len(self.cells):
            raise IllegalMoveError(f"cell {index} is none of the {len(self.cells)} cells")
        return self.cells[index]

    def change(self, index: int, state: CellState) -> None:
        """Record that a cell entered `state`; raise IllegalMoveError where the table does not allow it."""
        cell = self.cell(index)
        if state not in CELL_MOVES[cell.state]:
            raise IllegalMoveError(f"cell {index} cannot go from {cell.state} to {state}")
        cell.state = state
        if state is CellState.FAILED:
            cell.role = CellRole.SERVING
        self._sum()

    def ask(self, index: int, role: CellRole) -> None:
        """Record that a cell was asked to take `role`; raise IllegalMoveError if it cannot."""
        cell = self.cell(index)
        settled = CellState.SERVING if role is CellRole.TRAINING else CellState.TRAINING
        if cell.state is not settled or not cell.elastic:
            raise IllegalMoveError(f"cell {index} ({cell.spec.kind}, {cell.state}) cannot be asked to take role {role}")
        cell.role = role
        self._sum()

    def _sum(self) -> None:
        self.serving_capacity = sum(cell.spec.capacity for cell in self.cells if cell.serving)
        self.standalone_capacity = sum(cell.spec.capacity for cell in self.cells if cell.serving and not cell.elastic)
        self.training_cells = sum(cell.training for cell in self.cells)

    @property
    def core(self) -> Cell:
        """The cell that holds the authoritative weights."""
        return self.cells[0]
