"""The lanes of all cells, and what moves them: roles, micro-steps, updates and publishes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import polars as pl

from ..cluster import CellSpec, CellState
from .lane import Lane
from .use import CellUse, GpuUse

CELLS_SCHEMA: Final[dict[str, pl.DataType]] = {
    "cell": pl.Int64(),
    "start_s": pl.Float64(),
    "end_s": pl.Float64(),
    "use": pl.Enum([use.value for use in CellUse]),
}
USAGE_SCHEMA: Final[dict[str, pl.DataType]] = {
    "cell": pl.Int64(),
    "use": pl.Enum([use.value for use in GpuUse]),
    "gpu_s": pl.Float64(),
}
METERS_SCHEMA: Final[dict[str, pl.DataType]] = {
    "cell": pl.Int64(),
    "time_s": pl.Float64(),
    "busy_s": pl.Float64(),  # since the run began
}
_SWITCHING: Final = frozenset({CellState.TO_TRAINING, CellState.TO_SERVING})
_SERVING: Final = frozenset({CellState.SERVING, CellState.DRAINING})


class Lanes:
    """Keeps one `Lane` a cell up to date; `capacity` is what the cells that serve now can serve together."""

    def __init__(self) -> None:
        self.capacity = 0
        self._lanes: dict[int, Lane] = {}
        self._core: int | None = None
        self._updating = False
        self._publishing = False
        self._last_offer_s = 0.0

    def start(self, now_s: float, cells: Iterable[CellSpec]) -> None:
        """Begin a lane for each cell; the first is the core."""
        for spec in cells:
            lane = Lane(spec=spec, state=spec.state)
            self._lanes[spec.cell] = lane
            self._core = spec.cell if self._core is None else self._core
            self.capacity += spec.capacity if spec.state is CellState.SERVING else 0
            lane.turn(now_s, self._use(lane))

    def change(self, now_s: float, cell: int, state: CellState) -> None:
        """Cell `cell` entered `state`."""
        lane = self._lanes[cell]
        self.capacity -= lane.spec.capacity if lane.state is CellState.SERVING else 0
        self.capacity += lane.spec.capacity if state is CellState.SERVING else 0
        lane.state = state
        if state is CellState.FAILED:
            lane.micro_steps = 0
            if cell == self._core and self._updating:  # a publish stays begun: engines wait for the core's return
                self.update(now_s, running=False)
        lane.turn(now_s, self._use(lane))

    def claim(self, now_s: float, cell: int) -> None:
        """Cell `cell` took a micro-step."""
        lane = self._lanes[cell]
        lane.micro_steps += 1
        lane.turn(now_s, self._use(lane))

    def done(self, now_s: float, cell: int) -> None:
        """Cell `cell` returned a micro-step."""
        lane = self._lanes[cell]
        lane.micro_steps = max(0, lane.micro_steps - 1)
        lane.turn(now_s, self._use(lane))

    def release(self, cell: int) -> None:
        """Cell `cell` holds no micro-step any more, and returned none; `change` or `update` is to follow."""
        self._lanes[cell].micro_steps = 0

    def meter(self, now_s: float, cell: int, busy_s: float) -> None:
        """Cell `cell` says how long it has been busy since the run began."""
        lane = self._lanes[cell]
        lane.metered_s.append(now_s)
        lane.busy_s.append(busy_s)

    def offer(self, now_s: float) -> None:
        """Micro-steps went into the queue."""
        self._last_offer_s = now_s

    def update(self, now_s: float, running: bool) -> None:
        """The update begins or ends.

        Waits between the last offer and the update's begin were for other cells' micro-steps: no sample was to come.
        """
        self._updating = running
        for lane in self._lanes.values():
            if running:
                lane.relabel(self._last_offer_s, CellUse.WAITING_FOR_SAMPLES, CellUse.WAITING_FOR_OTHERS)
            lane.turn(now_s, self._use(lane))

    def publish(self, now_s: float, running: bool) -> None:
        """A publish begins or ends."""
        self._publishing = running
        for lane in self._lanes.values():
            lane.turn(now_s, self._use(lane))

    def cells(self, end_s: float) -> pl.DataFrame:
        """Return all segments (`CELLS_SCHEMA`), by cell, then by time; a cell's segments are contiguous."""
        rows = [(cell, *segment) for cell, lane in self._lanes.items() for segment in lane.segments(end_s)]
        return pl.DataFrame(rows, schema=CELLS_SCHEMA, orient="row")

    def usage(self, end_s: float) -> pl.DataFrame:
        """Return GPU-seconds by cell and use (`USAGE_SCHEMA`); they sum to GPUs times wall time."""
        rows = [
            (cell, use.value, gpu_s)
            for cell, lane in self._lanes.items()
            for use, gpu_s in lane.gpu_seconds(end_s).items()
        ]
        return pl.DataFrame(rows, schema=USAGE_SCHEMA, orient="row")

    def meters(self) -> pl.DataFrame:
        """Return what the cells' load reports said (`METERS_SCHEMA`), by cell, then by time."""
        rows = [
            (cell, *meter)
            for cell, lane in self._lanes.items()
            for meter in zip(lane.metered_s, lane.busy_s, strict=True)
        ]
        return pl.DataFrame(rows, schema=METERS_SCHEMA, orient="row")

    def _use(self, lane: Lane) -> CellUse:
        state = lane.state
        if state is CellState.FAILED:
            return CellUse.FAILED
        if state in _SWITCHING:
            return CellUse.SWITCHING
        if state is CellState.TRAINING and lane.micro_steps:
            return CellUse.TRAINING
        if self._publishing:
            return CellUse.PUBLISHING
        if state in _SERVING:
            return CellUse.SERVING
        if self._updating:
            return CellUse.UPDATING if lane.spec.cell == self._core else CellUse.WAITING_FOR_OTHERS
        return CellUse.WAITING_FOR_SAMPLES
