"""How near a finished run came to the clairvoyant bound."""

from __future__ import annotations

import math

import numpy as np

from gyre.commands import OfferMicroSteps
from gyre.journal import Entry
from gyre.policies import Dispatch

from .bounds import LowerBound, lower_bound
from .group_rows import GroupRows
from .run import Run


class ConsumedGroups:
    """Collects from a journal which groups each step took; `rows` says which executions of the workload these were."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._rows = GroupRows(run)
        # step -> groups, each once though a restarted step offers it again
        self._steps: dict[int, dict[int, None]] = {}

    def add(self, entry: Entry) -> None:
        """Take the next entry of the journal."""
        if isinstance(entry, OfferMicroSteps):
            self._steps.setdefault(entry.step, {})[entry.group] = None
        else:
            self._rows.add(entry)

    def bound(self, updates: int) -> LowerBound | None:
        """Return the bound on the time of the first `updates` updates; None where there was none.

        Under boundary dispatch at most (phi + mu) * B groups are in flight, whatever order they are taken in; a policy
        that dispatches otherwise has no such limit, and only work and the longest group bound it.
        """
        steps = [
            np.stack([self._rows.of(group) for group in groups])
            for step, groups in sorted(self._steps.items())
            if step < updates
        ]
        if not steps:
            return None
        settings, limits = self._run.settings, self._run.settings.limits
        policy = settings.make_policy().settings
        boundary = policy.dispatch is Dispatch.BOUNDARY
        gpus = settings.cluster.cells * self._run.hardware.cell.gpus
        gpus += settings.cluster.standalone_engines * self._run.hardware.engine.gpus_per_engine
        return lower_bound(
            self._run.program,
            self._run.hardware,
            steps,
            gpus,
            max_staleness=policy.mu - 1 if boundary and policy.phi == 0 else None,
            depth_groups=max(1, policy.depth_groups(settings.training.groups_per_step)) if boundary else None,
            harness_timeout_s=limits.harness_timeout_s or math.inf,
            overall_timeout_s=limits.overall_timeout_s or math.inf,
        )
