"""What a journal says of cells, steps and weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from .. import commands as cmd
from .. import events as ev
from ..cluster import CellSpec, CellState
from .lanes import Lanes
from .rollout_book import RolloutBook
from .step_log import MicroStepLog, StepRow


class TrainingBook:
    """All cells, steps and publishes so far. `handlers` take (now_s, entry); they raise KeyError for an unknown id."""

    def __init__(self, rollouts: RolloutBook, problems: Counter[str]) -> None:
        self.specs: tuple[CellSpec, ...] = ()
        self.steps: dict[int, StepRow] = {}
        self.micro_steps = MicroStepLog()
        self.lanes = Lanes()
        self.publishes: list[tuple[float, int]] = []
        self.transfers: list[ev.TransferDone] = []
        self.problems = problems
        self._rollouts = rollouts
        self.handlers: dict[type, Callable[[float, Any], None]] = {
            ev.RunStarted: self._run_started,
            ev.RunResumed: self._run_resumed,
            ev.LoadReport: self._load_report,
            ev.CellChanged: self._cell_changed,
            ev.TransferDone: self._transfer_done,
            ev.CellFailed: self._cell_failed,
            ev.CellJoined: self._cell_joined,
            ev.MicroStepClaimed: self._micro_step_claimed,
            ev.MicroStepDone: self._micro_step_done,
            ev.UpdateApplied: self._update_applied,
            ev.WeightsPublished: self._weights_published,
            cmd.OpenStep: self._open_step,
            cmd.OfferMicroSteps: self._offer_micro_steps,
            cmd.CloseJoinWindow: self._close_join_window,
            cmd.ApplyUpdate: self._apply_update,
            cmd.PublishWeights: self._publish_weights,
        }

    # Steps

    def _open_step(self, now_s: float, entry: cmd.OpenStep) -> None:
        again = self.steps.get(entry.step)
        if again is None:
            if entry.step != len(self.steps):
                self.problems["step opened out of turn"] += 1
            self.steps[entry.step] = StepRow(step=entry.step, opened_s=now_s)
            return
        again.restart()  # the core failed and came back
        self.micro_steps.void(now_s, entry.step)
        for spec in self.specs:  # what is still computed of it is of no use, and its return will not count
            self.lanes.release(spec.cell)
        self.lanes.update(now_s, running=False)

    def _offer_micro_steps(self, now_s: float, entry: cmd.OfferMicroSteps) -> None:
        step, tokens = self.steps[entry.step], entry.tokens
        step.groups[entry.group] = self._rollouts.take(now_s, entry.group, entry.step, sum(tokens))
        step.tokens.update(enumerate(tokens, start=entry.first))
        self.lanes.offer(now_s)

    def _micro_step_claimed(self, now_s: float, entry: ev.MicroStepClaimed) -> None:
        tokens = self.steps[entry.step].tokens.get(entry.micro_step, 0)
        self.lanes.claim(now_s, entry.cell)
        if not self.micro_steps.claim(now_s, (entry.cell, entry.step, entry.micro_step), tokens):
            self.problems["micro-step claimed twice"] += 1

    def _micro_step_done(self, now_s: float, entry: ev.MicroStepDone) -> None:
        if not self.micro_steps.done(now_s, (entry.cell, entry.step, entry.micro_step)):
            self.problems["micro-step returned by a cell that had not claimed it"] += 1
            return
        self.lanes.done(now_s, entry.cell)
        self.steps[entry.step].cells.add(entry.cell)

    def _close_join_window(self, now_s: float, entry: cmd.CloseJoinWindow) -> None:
        self.steps[entry.step].closed_s = now_s

    def _apply_update(self, now_s: float, entry: cmd.ApplyUpdate) -> None:
        if self.micro_steps.holds(entry.step):
            self.problems["update without all micro-steps returned"] += 1
        self.steps[entry.step].applied_s = now_s
        self.lanes.update(now_s, running=True)

    def _update_applied(self, now_s: float, entry: ev.UpdateApplied) -> None:
        self.lanes.update(now_s, running=False)
        step = self.steps[entry.version - 1]
        if step.updated_s is not None:
            self.problems["update applied twice"] += 1
        step.updated_s = now_s
        for group in step.groups.values():
            if group.step_trained == step.step:
                group.consumed_s = now_s

    def _publish_weights(self, now_s: float, entry: cmd.PublishWeights) -> None:
        self.lanes.publish(now_s, running=True)

    def _weights_published(self, now_s: float, entry: ev.WeightsPublished) -> None:
        self.lanes.publish(now_s, running=False)
        self.publishes.append((now_s, entry.version))
        if entry.version - 1 in self.steps:
            self.steps[entry.version - 1].published_s = now_s

    # Cells

    def _run_started(self, now_s: float, entry: ev.RunStarted) -> None:
        if self.specs:
            self.problems["run started twice"] += 1
            return
        self.specs = entry.cells
        self.lanes.start(now_s, entry.cells)
        self._note_capacity(now_s)

    def _run_resumed(self, now_s: float, entry: ev.RunResumed) -> None:
        """All cells are up again with nothing on them, and updates from `version` on are to be made again."""
        self.lanes.update(now_s, running=False)
        self.lanes.publish(now_s, running=False)
        for spec in entry.cells:
            self.micro_steps.fail(now_s, spec.cell)
            self.lanes.release(spec.cell)
            self.lanes.change(now_s, spec.cell, spec.state)
        for step in self.steps.values():
            if step.step >= entry.version:
                step.updated_s = step.published_s = None
        self._note_capacity(now_s)

    def _load_report(self, now_s: float, entry: ev.LoadReport) -> None:
        self.lanes.meter(now_s, entry.cell, entry.busy_s)

    def _cell_changed(self, now_s: float, entry: ev.CellChanged) -> None:
        self.lanes.change(now_s, entry.cell, entry.state)
        self._note_capacity(now_s)

    def _transfer_done(self, now_s: float, entry: ev.TransferDone) -> None:
        if all(spec.cell != entry.cell for spec in self.specs):
            raise KeyError(entry.cell)
        self.transfers.append(entry)

    def _cell_failed(self, now_s: float, entry: ev.CellFailed) -> None:
        self.lanes.change(now_s, entry.cell, CellState.FAILED)
        self.micro_steps.fail(now_s, entry.cell)
        self._note_capacity(now_s)

    def _cell_joined(self, now_s: float, entry: ev.CellJoined) -> None:
        self.lanes.change(now_s, entry.cell, CellState.SERVING)
        self._note_capacity(now_s)

    def _note_capacity(self, now_s: float) -> None:
        self._rollouts.levels.capacity = self.lanes.capacity
        self._rollouts.levels.note(now_s)
