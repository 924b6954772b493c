"""What a person sees of a run: a line a step, or on a terminal a live view."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TextIO

from rich.console import Console

from ..watch.figures import SCORE

if TYPE_CHECKING:
    from gyre.backends.deploy.deployment import Deployment
    from gyre.backends.deploy.follower import RunFollower
    from gyre.backends.deploy.settings import DeploySettings

    from ..watch import Alert, StepFigures


class RunView(Protocol):
    """Shows a run."""

    def say(self, what: str) -> None:
        """Say what goes on now."""
        ...

    def step(self, step: StepFigures) -> None:
        """Show an update that was made."""
        ...

    def alert(self, alert: Alert) -> None:
        """Show an alert that began or ended."""
        ...

    async def follow(self, deployment: Deployment, follower: RunFollower) -> None:
        """Show how a run stands until cancelled."""
        ...


class PlainView:
    """A line a step; with `quiet` none."""

    def __init__(self, console: Console, steps: int, *, quiet: bool = False) -> None:
        """`steps` is how many the run has."""
        self._console = console
        self._steps = steps
        self._quiet = quiet

    def say(self, what: str) -> None:
        """See `RunView.say`."""
        self._print(what)

    def step(self, step: StepFigures) -> None:
        """See `RunView.step`."""
        self._print(step_line(step, self._steps))

    def alert(self, alert: Alert) -> None:
        """See `RunView.alert`."""
        self._print(alert_line(alert))

    async def follow(self, deployment: Deployment, follower: RunFollower) -> None:
        """See `RunView.follow`."""
        self._print(f"harnesses call {deployment.proxy.url}, metrics are at {deployment.proxy.admin_url}/metrics")

    def _print(self, line: str) -> None:
        if not self._quiet:
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)


def step_line(step: StepFigures, steps: int) -> str:
    """Return an update on one line."""
    score = step.means.get(SCORE)
    parts = [f"step {step.step + 1}/{steps}", f"{step.time_s:,.1f} s", f"{step.groups} groups"]
    if score is not None and score.mean is not None:
        parts.append(f"reward {score.mean:.3f}")
    if step.staleness_mean is not None:
        parts.append(f"staleness {step.staleness_mean:.2f}")
    parts += [f"{name} {step.metrics[name]:.3g}" for name in ("loss", "grad_norm") if name in step.metrics]
    return "  ".join(parts)


def alert_line(alert: Alert) -> str:
    """Return an alert on one line."""
    return f"{alert.severity}: {alert.sentence}" if alert.active else f"ended: {alert.title}"


@contextmanager
def make_view(screen: TextIO, settings: DeploySettings, *, plain: bool, quiet: bool) -> Iterator[RunView]:
    """Yield what shows a run on `screen`: live where that is a terminal, unless `plain`; with `quiet` nothing."""
    console, steps = Console(file=screen), settings.training.steps
    if plain or quiet or not console.is_terminal:
        yield PlainView(console, steps, quiet=quiet)
        return
    from .run_live import LiveView

    with LiveView(console, steps, settings.policy) as live:
        yield live
