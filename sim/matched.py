"""Settings at which policies may be compared: the same mean staleness, and the best split of `async`."""

from __future__ import annotations

from typing import Any, Final

from gyre.config import RunSettings
from gyre.errors import InputError
from gyre.events import UpdateApplied
from gyre.journal import Entry
from gyre.policies import AsyncSettings, Dispatch

from .run import Run, check

SPLIT_STEPS: Final = 12  # steps that each split of `async` is tried for


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
    return _with_keys(settings, mu=mu, phi=mean_staleness - (mu - 1) / 2)


def leaves_split_open(settings: RunSettings) -> bool:
    """Whether this is `async` without a number of training cells."""
    policy = settings.make_policy().settings
    return isinstance(policy, AsyncSettings) and policy.train_cells is None


def with_split(settings: RunSettings, train_cells: int) -> RunSettings:
    """Set the number of cells that train."""
    return _with_keys(settings, train_cells=train_cells)


def with_best_split(run: Run) -> Run:
    """Choose `train_cells` of an `async` run that leaves it open: try every split for some steps, keep the fastest."""
    settings = run.settings
    if not leaves_split_open(settings):
        return run
    most = settings.cluster.cells - (0 if settings.cluster.standalone_engines else 1)
    times = {}
    for train_cells in range(1, most + 1):
        steps = min(settings.training.steps, SPLIT_STEPS)
        trial = with_split(settings, train_cells)
        trial = trial.model_copy(update={"training": trial.training.model_copy(update={"steps": steps})})
        times[train_cells] = _wall_s(run.with_policy(trial))
    if not times:
        check(settings)
    return run.with_policy(with_split(settings, min(times, key=times.__getitem__)))


def _wall_s(run: Run) -> float:
    last = [0.0]

    def record(entry: Entry) -> None:
        if isinstance(entry, UpdateApplied):
            last[0] = entry.time_s

    run.simulate(record)
    return last[0]


def _with_keys(settings: RunSettings, **keys: Any) -> RunSettings:
    return settings.model_copy(update={"policy_settings": settings.policy_settings | keys})
