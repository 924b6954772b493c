"""The live view of a run on a terminal."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ..cluster import CellState
from ..view import View
from ..watch.figures import SCORE
from .run_view import alert_line, step_line

if TYPE_CHECKING:
    from gyre.backends.deploy.deployment import Deployment
    from gyre.backends.deploy.follower import RunFollower

    from ..watch import Alert, StepFigures, Watcher

_EVERY_S: Final = 0.5
_PACE_S: Final = 10.0  # over which tokens per second are counted
_SPARKS: Final = "▁▂▃▄▅▆▇█"
_MOST_SPARKS: Final = 60
_MOST_ALERTS: Final = 3
_STYLES: Final = {
    CellState.SERVING: "green",
    CellState.TRAINING: "cyan",
    CellState.FAILED: "bold red",
}  # others are on their way


class LiveView:
    """See `RunView`. Steps scroll by above a table of how the run stands."""

    def __init__(self, console: Console, steps: int, policy: str) -> None:
        """Take the screen, and what the run is."""
        self._console = console
        self._steps = steps
        self._policy = policy
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._said = ""

    def __enter__(self) -> Self:
        """Begin."""
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Take it off the screen."""
        self._live.stop()

    def say(self, what: str) -> None:
        """See `RunView.say`."""
        self._said = what
        self._live.update(Text(what, "dim"), refresh=True)

    def step(self, step: StepFigures) -> None:
        """See `RunView.step`."""
        self._console.print(step_line(step, self._steps), markup=False, highlight=False)

    def alert(self, alert: Alert) -> None:
        """See `RunView.alert`."""
        self._console.print(Text(alert_line(alert), "yellow"))

    async def follow(self, deployment: Deployment, follower: RunFollower) -> None:
        """See `RunView.follow`."""
        pace = Pace()
        while not follower.begun:
            await asyncio.sleep(_EVERY_S)
        self._said = f"harnesses call {deployment.proxy.url}, metrics are at {deployment.proxy.admin_url}/metrics"
        while True:
            pace.note(time.monotonic(), deployment.output_tokens)
            self._live.update(self.picture(deployment, follower, pace.per_s), refresh=True)
            await asyncio.sleep(_EVERY_S)

    def picture(self, deployment: Deployment, follower: RunFollower, tokens_per_s: float) -> Group:
        """Return how a run stands."""
        view, watcher = View(deployment.controller), follower.watcher
        step = min(view.version + 1, self._steps)
        parts = [f"{self._policy}, step {step}/{self._steps} {view.step_phase.value}", f"{tokens_per_s:,.0f} tokens/s"]
        if watcher.steps and (stale := watcher.steps[-1].staleness_mean) is not None:
            parts.append(f"staleness {stale:.2f}")
        waiting = view.water_level - view.running_executions
        level = (
            f"water level {view.water_level:,} of capacity {view.serving_capacity:,}: {waiting:,} waiting, "
            f"{view.running_executions:,} running; {view.ready_groups:,} groups ready"
        )
        alerts = [Text(alert_line(alert), "yellow") for alert in watcher.alerts if alert.active][-_MOST_ALERTS:]
        said = [Text(self._said, "dim")] if self._said else []
        lines = [Text("   ".join(parts), "bold"), Text(level), *_reward(watcher), *alerts, *said]
        return Group(cells_table(deployment, follower), *lines)


def cells_table(deployment: Deployment, follower: RunFollower) -> Table:
    """Return the cells, what each is at, for how long, and how many requests its engine runs."""
    table = Table(box=None, pad_edge=False)
    for name in ("cell", "kind", "state"):
        table.add_column(name)
    for name in ("seconds", "requests"):
        table.add_column(name, justify="right")
    now_s, loads = deployment.cluster.now_s, deployment.requests()
    for cell in deployment.controller.fleet.cells:
        state, since_s = follower.cells[cell.index]
        requests = loads.get(cell.index)
        table.add_row(
            str(cell.index),
            cell.spec.kind.value,
            Text(state.value.replace("_", " "), _STYLES.get(state, "yellow")),
            f"{now_s - since_s:,.0f}",
            "" if requests is None else f"{requests:,}",
        )
    return table


def _reward(watcher: Watcher) -> list[Text]:
    means = [step.means[SCORE].mean for step in watcher.steps if SCORE in step.means]
    values = [mean for mean in means if mean is not None][-_MOST_SPARKS:]
    if not values:
        return []
    return [Text.assemble("reward ", (sparkline(values), "green"), f" {values[-1]:.3f} ({values[0]:.3f} at first)")]


def sparkline(values: Sequence[float]) -> str:
    """Return values as bars, the lowest one the lowest bar."""
    low, span = min(values), max(values) - min(values)
    top = len(_SPARKS) - 1
    return "".join(_SPARKS[round((value - low) / span * top) if span else top // 2] for value in values)


class Pace:
    """How fast a counter rises, over the last ten seconds."""

    def __init__(self) -> None:
        self._noted: deque[tuple[float, float]] = deque()

    def note(self, now_s: float, count: float) -> None:
        """Take the count as it is now."""
        self._noted.append((now_s, count))
        while len(self._noted) > 2 and now_s - self._noted[1][0] > _PACE_S:
            self._noted.popleft()

    @property
    def per_s(self) -> float:
        """The pace; 0 before there are two counts."""
        (first_s, first), (last_s, last) = self._noted[0], self._noted[-1]
        return (last - first) / (last_s - first_s) if last_s > first_s else 0.0
