"""What a journal says of how long cells take: to switch, to train a micro-step, to update, save and publish."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gyre import commands as cmd
from gyre import events as ev
from gyre.cluster import CellRole, CellState
from gyre.journal import Entry, Header

_ARRIVED = {CellState.TRAINING: CellRole.TRAINING, CellState.SERVING: CellRole.SERVING}
_LAST_STEPS = {"load": CellRole.TRAINING, "admit": CellRole.SERVING}  # of a move


@dataclass(frozen=True, slots=True)
class MicroStepTime:
    """A micro-step that one cell claimed and returned."""

    tokens: int
    gpus: int
    seconds: float
    joins: bool  # a satellite's first one of the step: the snapshot may be pulled within


@dataclass(slots=True)
class CellTimes:
    """Seconds of each kind, in the journal's order. Feed it the whole journal with `add`."""

    switches: dict[CellRole, list[float]] = field(default_factory=lambda: {role: [] for role in CellRole})
    rehearsals: dict[CellRole, list[float]] = field(default_factory=lambda: {role: [] for role in CellRole})  # whole
    transfers: dict[str, list[float]] = field(default_factory=dict)  # by step of a move or publish
    updates: list[float] = field(default_factory=list)
    checkpoints: list[float] = field(default_factory=list)
    publishes: list[float] = field(default_factory=list)
    publish_spans: list[tuple[float, float]] = field(default_factory=list)  # begin and end
    micro_steps: list[MicroStepTime] = field(default_factory=list)
    core_waits: list[float] = field(default_factory=list)  # from an offer to its first claim, where the core waited
    satellite_waits: list[float] = field(default_factory=list)  # the same of a satellite that had no snapshot yet
    busy_s: float = 0.0  # of cells with micro-steps, weighted with their GPUs
    gpus: dict[int, int] = field(default_factory=dict)  # by cell
    _asked: dict[int, tuple[CellRole, float]] = field(default_factory=dict)
    _applying: dict[int, float] = field(default_factory=dict)
    _updated: dict[int, float] = field(default_factory=dict)
    _publishing: dict[int, float] = field(default_factory=dict)
    _tokens: dict[tuple[int, int], int] = field(default_factory=dict)  # by step and micro-step
    _offered: dict[tuple[int, int], float] = field(default_factory=dict)
    _claimed: dict[tuple[int, int, int], float] = field(default_factory=dict)  # by cell, step and micro-step
    _free: dict[int, float] = field(default_factory=dict)  # cells in training: since when they have no micro-step
    _joined: set[tuple[int, int]] = field(default_factory=set)  # cell and step
    _saved_s: float = 0.0
    _rehearsing: dict[int, float] = field(default_factory=dict)  # by cell, seconds of the move so far

    def add(self, entry: Header | Entry) -> None:
        """Take the next entry."""
        handler = _HANDLERS.get(type(entry))
        if handler is not None:
            handler(self, entry)

    def started(self, entry: ev.RunStarted | ev.RunResumed) -> None:
        """What was under way before a restart is not measured."""
        self.gpus = {spec.cell: spec.gpus for spec in entry.cells}
        for open_work in (self._asked, self._applying, self._publishing, self._claimed, self._free, self._updated):
            open_work.clear()

    def asked(self, entry: cmd.SwitchRole) -> None:
        """A move begins."""
        self._asked[entry.cell] = entry.role, entry.time_s
        self._free.pop(entry.cell, None)

    def changed(self, entry: ev.CellChanged) -> None:
        """A move ends, if this is the state that was asked for."""
        role = _ARRIVED.get(entry.state)
        asked = self._asked.get(entry.cell)
        if role is not None and asked is not None and asked[0] is role:
            self.switches[role].append(entry.time_s - asked[1])
            del self._asked[entry.cell]
        if role is CellRole.TRAINING:
            self._free[entry.cell] = entry.time_s

    def failed(self, entry: ev.CellFailed) -> None:
        """A failure's times are nobody's."""
        self._asked.pop(entry.cell, None)
        self._free.pop(entry.cell, None)
        for claim in [claim for claim in self._claimed if claim[0] == entry.cell]:
            del self._claimed[claim]

    def transferred(self, entry: ev.TransferDone) -> None:
        """A step of a move is done."""
        if not entry.rehearsed:
            self.transfers.setdefault(entry.step, []).append(entry.seconds)
            return
        seconds = self._rehearsing.get(entry.cell, 0.0) + entry.seconds
        role = _LAST_STEPS.get(entry.step)
        if role is not None:
            self.rehearsals[role].append(seconds)
        self._rehearsing[entry.cell] = 0.0 if role is not None else seconds

    def applying(self, entry: cmd.ApplyUpdate) -> None:
        """The update begins."""
        self._applying[entry.step + 1] = entry.time_s

    def updated(self, entry: ev.UpdateApplied) -> None:
        """The update is made."""
        if entry.version in self._applying:
            self.updates.append(entry.time_s - self._applying.pop(entry.version))
        self._updated[entry.version] = entry.time_s

    def saved(self, entry: ev.CheckpointSaved) -> None:
        """Its weights are durable."""
        if entry.version in self._updated:
            self.checkpoints.append(entry.time_s - self._updated.pop(entry.version))
        self._saved_s = entry.time_s

    def publishing(self, entry: cmd.PublishWeights) -> None:
        """A publish begins."""
        self._publishing[entry.version] = entry.time_s

    def published(self, entry: ev.WeightsPublished) -> None:
        """It is done."""
        begun_s = self._publishing.pop(entry.version, None)
        if begun_s is not None:
            self.publishes.append(entry.time_s - begun_s)
            self.publish_spans.append((begun_s, entry.time_s))

    def offered(self, entry: cmd.OfferMicroSteps) -> None:
        """Micro-steps may soon be claimed."""
        for place, tokens in enumerate(entry.tokens):
            self._tokens[entry.step, entry.first + place] = tokens
            self._offered[entry.step, entry.first + place] = entry.time_s

    def claimed(self, entry: ev.MicroStepClaimed) -> None:
        """A cell begins with one."""
        self._claimed[entry.cell, entry.step, entry.micro_step] = entry.time_s
        free_s = self._free.pop(entry.cell, None)
        offered_s = self._offered.get((entry.step, entry.micro_step))
        if free_s is None or offered_s is None:
            return
        wait_s = entry.time_s - max(free_s, offered_s, self._saved_s)
        if free_s <= offered_s and entry.cell == 0:
            self.core_waits.append(max(0.0, wait_s))
        elif entry.cell != 0 and (entry.cell, entry.step) not in self._joined:
            self.satellite_waits.append(max(0.0, wait_s))

    def done(self, entry: ev.MicroStepDone) -> None:
        """Its gradient is in the sum."""
        claimed_s = self._claimed.pop((entry.cell, entry.step, entry.micro_step), None)
        self._free[entry.cell] = entry.time_s
        if claimed_s is None:
            return
        member = (entry.cell, entry.step)
        joins = entry.cell != 0 and member not in self._joined
        self._joined.add(member)
        gpus, tokens = self.gpus.get(entry.cell, 1), self._tokens.get((entry.step, entry.micro_step))
        seconds = entry.time_s - claimed_s
        self.busy_s += seconds * gpus
        if tokens is not None:
            self.micro_steps.append(MicroStepTime(tokens, gpus, seconds, joins))


_HANDLERS: dict[type, Callable[[CellTimes, Any], None]] = {
    ev.RunStarted: CellTimes.started,
    ev.RunResumed: CellTimes.started,
    ev.CellChanged: CellTimes.changed,
    ev.CellFailed: CellTimes.failed,
    ev.TransferDone: CellTimes.transferred,
    ev.UpdateApplied: CellTimes.updated,
    ev.CheckpointSaved: CellTimes.saved,
    ev.WeightsPublished: CellTimes.published,
    ev.MicroStepClaimed: CellTimes.claimed,
    ev.MicroStepDone: CellTimes.done,
    cmd.SwitchRole: CellTimes.asked,
    cmd.ApplyUpdate: CellTimes.applying,
    cmd.PublishWeights: CellTimes.publishing,
    cmd.OfferMicroSteps: CellTimes.offered,
}
