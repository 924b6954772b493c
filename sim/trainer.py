"""The simulated training side: one queue of micro-steps, claimed by training cells; one update at the core."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from functools import partial

import simpy

from gyre.commands import ApplyUpdate, OfferMicroSteps
from gyre.events import MicroStepClaimed, MicroStepDone, UpdateApplied

from .context import Context
from .training import attended_pairs, micro_step_s

Claim = tuple[int, int, tuple[int, ...]]  # version, micro-step, tokens of each sample


class Trainer:
    """Queue of the open step and the cells that work on it.

    A cell claims a micro-step as soon as it is free, oldest policy version first. A satellite's first claim in a step
    is preceded by the pull of the core's snapshot. The core makes groups' micro-steps one group after another, once the
    last update is saved; they can be claimed from then on.
    """

    def __init__(
        self, context: Context, gpus: list[int], trains: Callable[[int], bool], before_update: Callable[[], None]
    ) -> None:
        self._context = context
        self._gpus = gpus  # GPUs of each cell
        self._trains = trains
        self._before_update = before_update  # reports what must stand in the journal before the update does
        self._step = -1
        self._attempt = 0  # steps begun so far, those begun again included
        self._queue: list[Claim] = []  # heap
        self._claims: dict[int, Claim] = {}  # cell -> what it works on
        self._work: dict[int, simpy.Event] = {}  # cell -> end of what it works on
        self._joined: set[int] = set()  # cells that hold this step's snapshot
        self._update: simpy.Event | None = None  # rings when the update under way is made
        self._prepared_s = 0.0  # the core has made all that was offered so far

    def open(self, step: int) -> None:
        """Begin a step with an empty queue; what a restarted step had in work is abandoned."""
        for cell in list(self._work):
            self._abandon(cell)
        self._step = step
        self._attempt += 1
        self._queue.clear()
        self._joined = {0}

    def offer(self, command: OfferMicroSteps) -> None:
        """Put micro-steps into the queue, once they are made, and let free cells claim."""
        now_s = self._context.now_s
        self._prepared_s = max(self._prepared_s, now_s) + self._context.hardware.training.offer_s
        if self._prepared_s > now_s:
            self._context.after(self._prepared_s - now_s, partial(self._made, command, self._attempt))
        else:
            self._made(command, self._attempt)

    def _made(self, command: OfferMicroSteps, attempt: int, _: simpy.Event | None = None) -> None:
        if attempt != self._attempt:
            return  # the step was begun again meanwhile
        for place, samples in enumerate(command.samples):
            heapq.heappush(self._queue, (command.version, command.first + place, samples))
        self._claim_all()

    def cell_changed(self, cell: int) -> None:
        """A cell arrived in training or left it; what it had claimed goes back to the queue if it left."""
        if self._trains(cell):
            self._claim(cell)
            return
        self._joined.discard(cell)
        claim = self._claims.get(cell)
        if claim is not None:
            heapq.heappush(self._queue, claim)
            self._abandon(cell)
            self._claim_all()
        if cell == 0:
            self._update = None  # what was in the core's memory is gone

    def apply(self, command: ApplyUpdate) -> None:
        """Make the optimizer's update at the core."""
        self._update = self._context.after(
            self._context.hardware.training.update_s, partial(self._updated, command.step)
        )

    def _updated(self, step: int, update: simpy.Event) -> None:
        if self._update is not update:
            return
        self._update = None
        self._before_update()
        self._prepared_s = self._context.now_s + self._context.hardware.training.checkpoint_s
        self._context.report(UpdateApplied(self._context.now_s, step + 1))

    def _abandon(self, cell: int) -> None:
        del self._claims[cell]
        del self._work[cell]

    def _claim_all(self) -> None:
        for cell in range(len(self._gpus)):
            if not self._queue:
                return
            if self._trains(cell):
                self._claim(cell)

    def _claim(self, cell: int) -> None:
        if not self._queue or cell in self._work:
            return
        claim = self._claims[cell] = heapq.heappop(self._queue)
        self._work[cell] = self._context.after(self._seconds(cell, claim), partial(self._returned, cell))
        self._context.report(MicroStepClaimed(self._context.now_s, cell, self._step, claim[1]))

    def _seconds(self, cell: int, claim: Claim) -> float:
        hardware, samples = self._context.hardware, claim[2]
        seconds = micro_step_s(hardware, sum(samples), self._gpus[cell], attended_pairs(samples))
        return seconds if cell in self._joined else seconds + hardware.pull_s

    def _returned(self, cell: int, work: simpy.Event) -> None:
        if self._work.get(cell) is not work:
            return  # abandoned meanwhile
        self._joined.add(cell)
        del self._work[cell]
        micro_step = self._claims.pop(cell)[1]
        self._context.report(MicroStepDone(self._context.now_s, cell, self._step, micro_step))
        self._claim(cell)
