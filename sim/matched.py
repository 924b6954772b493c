"""Settings at which policies may be compared: the same mean staleness, and the best split of `async`."""

from __future__ import annotations

import math
from typing import Any, Final

from gyre.commands import OfferMicroSteps
from gyre.config import RunSettings
from gyre.errors import InputError
from gyre.events import UpdateApplied
from gyre.journal import Entry
from gyre.policies import AsyncSettings, Dispatch

from .run import Run, check

SPLIT_STEPS: Final = 12  # steps that each split of `async` is tried for
STALENESS_STEPS: Final = 16  # steps over which staleness is measured, the first half of them to fill the queue
STALENESS_TOLERANCE: Final = 0.05  # versions
MOST_CORRECTIONS: Final = 4


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


def with_best_split(run: Run) -> Run:
    """Choose `train_cells` of an `async` run that leaves it open: more cells train until that makes it slower."""
    settings = run.settings
    if not leaves_split_open(settings):
        return run
    most = settings.cluster.cells - (0 if settings.cluster.standalone_engines else 1)
    best, best_s = 0, math.inf
    for train_cells in range(1, most + 1):
        pilot = Pilot(run.with_policy(with_keys(settings, train_cells=train_cells)), SPLIT_STEPS)
        if pilot.wall_s > best_s:
            break
        best, best_s = train_cells, pilot.wall_s
    if best == 0:
        check(settings)
    return run.with_policy(with_keys(settings, train_cells=best))


def with_measured_staleness(run: Run, mean_staleness: float) -> Run:
    """Correct phi until the mean staleness that a pilot measures, once the queue is filled, is the one asked for.

    Groups that are dropped hold places of the queue and are never trained, so that those that are trained are fresher
    than phi + (mu - 1)/2. Where nothing is dropped the first pilot finds nothing to correct.
    """
    for _ in range(MOST_CORRECTIONS):
        measured = Pilot(run, STALENESS_STEPS).settled_staleness
        if abs(measured - mean_staleness) <= STALENESS_TOLERANCE:
            break
        policy = run.settings.make_policy().settings
        phi = max(0.0, policy.phi + mean_staleness - measured)
        run = run.with_policy(with_keys(run.settings, phi=phi))
    return run


class Pilot:
    """A run's first steps, simulated to see how it behaves."""

    def __init__(self, run: Run, steps: int) -> None:
        training = run.settings.training.model_copy(update={"steps": steps})
        self._taken: list[tuple[int, int]] = []  # (step, staleness) of each group
        self.wall_s = 0.0  # time of the last update
        run.with_policy(run.settings.model_copy(update={"training": training})).simulate(self._record)
        self._steps = steps

    def _record(self, entry: Entry) -> None:
        if isinstance(entry, UpdateApplied):
            self.wall_s = entry.time_s
        elif isinstance(entry, OfferMicroSteps):
            self._taken.append((entry.step, entry.step - entry.version))

    @property
    def settled_staleness(self) -> float:
        """Mean staleness over the second half of the steps."""
        settled = [staleness for step, staleness in self._taken if step >= self._steps // 2]
        return sum(settled) / len(settled)


def with_keys(settings: RunSettings, **keys: Any) -> RunSettings:
    """Return the settings with some of the policy's own set."""
    return settings.model_copy(update={"policy_settings": settings.policy_settings | keys})
