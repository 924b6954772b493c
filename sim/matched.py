"""Settings at which policies may be compared: the same mean staleness, and the best split of `async`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from gyre.commands import DropGroup, OfferMicroSteps
from gyre.config import RunSettings
from gyre.errors import InputError
from gyre.events import UpdateApplied
from gyre.journal import Entry
from gyre.policies import AsyncSettings, Dispatch

from .run import Run, check

SPLIT_STEPS: Final = 8  # steps that each split of `async` is tried for
STALENESS_STEPS: Final = 12  # steps of a pilot beside twice those that fill the queue; the second half is measured
STALENESS_TOLERANCE: Final = 0.05  # versions
MOST_CORRECTIONS: Final = 4
ENTRIES_BETWEEN_LOOKS: Final = 256

Look = Callable[[], None]


def at_staleness(settings: RunSettings, mean_staleness: float) -> RunSettings:
    """Set a policy to a mean scheduling staleness (versions) by phi = staleness - (mu - 1)/2.

    mu is kept where it can be; at less than (mu - 1)/2 it is lowered to the largest that allows the staleness.

    Raises:
        InputError: the policy does not dispatch at boundaries, so that its staleness cannot be set.
    """
    policy = settings.make_policy().settings
    if policy.dispatch is not Dispatch.BOUNDARY:
        raise InputError(f"policy {settings.policy}: dispatch: staleness can be matched for boundary dispatch only")
    mu = min(policy.mu, int(2 * mean_staleness) + 1)
    return with_keys(settings, mu=mu, phi=mean_staleness - (mu - 1) / 2)


def leaves_split_open(settings: RunSettings) -> bool:
    """Whether this is `async` without a number of training cells."""
    policy = settings.make_policy().settings
    return isinstance(policy, AsyncSettings) and policy.train_cells is None


def with_best_split(run: Run, look: Look) -> Run:
    """Choose `train_cells` of an `async` run that leaves it open: more cells train until that makes it slower."""
    settings = run.settings
    if not leaves_split_open(settings):
        return run
    most = settings.cluster.cells - (0 if settings.cluster.standalone_engines else 1)
    best, best_s = 0, math.inf
    for train_cells in range(1, most + 1):
        pilot = Pilot(run.with_policy(with_keys(settings, train_cells=train_cells)), SPLIT_STEPS, look)
        if pilot.wall_s > best_s:
            break
        best, best_s = train_cells, pilot.wall_s
    if best == 0:
        check(settings)
    return run.with_policy(with_keys(settings, train_cells=best))


def with_measured_staleness(run: Run, mean_staleness: float, look: Look) -> Run:
    """Correct phi where groups are lost, until the mean staleness of a pilot is the one asked for.

    Groups that are dropped hold places of the queue and are never trained, so that those that are trained are fresher
    than phi + (mu - 1)/2. Where nothing is dropped that mean holds and phi stays as it is.
    """
    for _ in range(MOST_CORRECTIONS):
        policy = run.settings.make_policy().settings
        pilot = Pilot(run, STALENESS_STEPS + 2 * math.ceil(policy.phi + policy.mu), look)
        error = mean_staleness - pilot.settled_staleness
        if not pilot.lost_groups or abs(error) <= STALENESS_TOLERANCE:
            break
        # Of the places that phi adds, only the share of groups that is trained in the end makes them staler.
        run = run.with_policy(with_keys(run.settings, phi=max(0.0, policy.phi + error / pilot.trained_share)))
    return run


class Pilot:
    """A run's first steps, simulated to see how it behaves. `look` is called now and then and may raise to end it."""

    def __init__(self, run: Run, steps: int, look: Look) -> None:
        training = run.settings.training.model_copy(update={"steps": steps})
        self._taken: list[tuple[int, int]] = []  # (step, staleness) of each group
        self._steps = steps
        self._look = look
        self._entries = 0
        self.lost_groups = 0
        self.wall_s = 0.0  # time of the last update
        run.with_policy(run.settings.model_copy(update={"training": training})).simulate(self._record)

    def _record(self, entry: Entry) -> None:
        if isinstance(entry, UpdateApplied):
            self.wall_s = entry.time_s
        elif isinstance(entry, OfferMicroSteps):
            self._taken.append((entry.step, entry.step - entry.version))
        elif isinstance(entry, DropGroup):
            self.lost_groups += 1
        self._entries += 1
        if self._entries % ENTRIES_BETWEEN_LOOKS == 0:
            self._look()

    @property
    def trained_share(self) -> float:
        """Share of the groups that were trained, of those that were trained or dropped."""
        return len(self._taken) / (len(self._taken) + self.lost_groups)

    @property
    def settled_staleness(self) -> float:
        """Mean staleness over the second half of the steps."""
        settled = [staleness for step, staleness in self._taken if step >= self._steps // 2]
        return sum(settled) / max(1, len(settled))


def with_keys(settings: RunSettings, **keys: Any) -> RunSettings:
    """Return the settings with some of the policy's own set."""
    return settings.model_copy(update={"policy_settings": settings.policy_settings | keys})
