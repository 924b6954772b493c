"""A cell that joins the core's steps."""

from __future__ import annotations

import logging
import threading
from typing import Final

from .cell import TrainingCell
from .elastic_step import Claim, GoneError
from .micro_step_bytes import from_bytes
from .snapshot import SnapshotSource, check_layout
from .step_client import CoreLostError, StepClient
from .step_info import StepInfo

_log = logging.getLogger(__name__)

_SEND_TRIES = 3


class Satellite:
    """Pulls the snapshot of the open step, claims micro-steps and returns gradients, until it is told to leave.

    Whatever becomes of it, the core loses nothing; whatever becomes of the core, it asks again.
    """

    def __init__(
        self,
        cell: TrainingCell,
        client: StepClient,
        *,
        snapshots: SnapshotSource | None = None,
        wait_s: float = 10.0,
        retry_s: float = 1.0,
    ) -> None:
        """Take a cell and its client; `snapshots` is where weights come from, left out: the client."""
        self.cell: Final = cell
        self._client = client
        self._snapshots = snapshots or client
        self._wait_s = wait_s
        self._retry_s = retry_s
        self._leaves = threading.Event()
        self._loaded = ""  # digest of the weights that the cell holds
        self.committed = 0

    def leave(self) -> None:
        """Let `run`, which was called, end after the micro-step that is being computed; from any thread."""
        self._leaves.set()

    def run(self) -> None:
        """Work until `leave`, and give the cell's memory away; it may be called again then.

        Raises:
            InputError: the core trains another model, or runs another version of gyre.
        """
        try:
            self._work_on()
        finally:
            self._leaves.clear()
        self.cell.release()
        try:
            self._client.leave()
        except CoreLostError as error:  # its leases run out
            _log.warning("the core did not hear of the leave", extra={"reason": str(error)})

    def _work_on(self) -> None:
        greeted = False
        while not self._leaves.is_set():
            try:
                if not greeted:  # an earlier process of this cell may have died with claims
                    self._client.leave()
                    greeted = True
                    continue  # a leave said meanwhile is forgotten at the core by this one
                info = self._client.info(self._wait_s)
                if info is not None:
                    self._join(info)
            except GoneError:
                continue
            except CoreLostError as error:
                _log.warning("the core is not reached", extra={"reason": str(error)})
                self._leaves.wait(self._retry_s)

    def _join(self, info: StepInfo) -> None:
        check_layout((info.size, info.layout), (self.cell.size, self.cell.layout))
        if self._loaded != info.digest:
            self._loaded = ""
            self.cell.load(self._snapshots.fetch(info), info.version)
            self._loaded = info.digest
        while not self._leaves.is_set():
            claim = self._client.claim(info.attempt, self._wait_s)
            if claim is not None:
                self._work(info, claim)

    def _work(self, info: StepInfo, claim: Claim) -> None:
        gradient, figures = self.cell.gradient(from_bytes(claim.payload))
        for left in reversed(range(_SEND_TRIES)):
            try:
                self.committed += self._client.send(info.attempt, claim.number, gradient, figures)
                return
            except CoreLostError:
                if not left:
                    raise
                self._leaves.wait(self._retry_s)
