"""How a run stands, for Prometheus: beside the proxy's own metrics, at the same address."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from gyre.controller import Controller
from gyre.view import View
from gyre.watch import gauges

from .follower import RunFollower


class RunGauges(Collector):
    """Asked for when metrics are read."""

    def __init__(self, controller: Controller, follower: RunFollower) -> None:
        """Take what knows of a run."""
        self._view = View(controller)
        self._follower = follower

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Return the scheduler's levels, cells by state, and the figures of docs/watch.md by name."""
        view = self._view
        for name, what, value in (
            ("version", "Updates made", view.version),
            ("water_level", "Executions dispatched and not finished", view.water_level),
            ("running", "Executions that run", view.running_executions),
            ("ready_groups", "Groups that wait to be trained", view.ready_groups),
            ("capacity", "Executions that the serving cells carry", view.serving_capacity),
        ):
            yield GaugeMetricFamily(f"gyre_run_{name}", what, value)
        cells = GaugeMetricFamily("gyre_run_cells", "Cells by state", labels=("state",))
        for state, count in Counter(state for state, _ in self._follower.cells.values()).items():
            cells.add_metric((state.value,), count)
        yield cells
        figures = GaugeMetricFamily("gyre_run_figure", "Figures of the last step, and alerts", labels=("name",))
        for name, figure in gauges(self._follower.watcher.health()).items():
            figures.add_metric((name,), figure)
        yield figures
