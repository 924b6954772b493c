"""A satellite in a process of its own: `python -m gyre.backends.training.satellite_process`, told over its pipes."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import queue
import sys
import threading
import time
from contextlib import suppress
from typing import IO, Any, Final, NoReturn

from gyre.errors import InputError

from .open_cell import open_cell
from .rank_cell import CellLostError
from .satellite import Satellite
from .satellite_orders import JOIN, LEAVE, SatelliteOrders
from .snapshot import SharedSnapshots
from .step_client import CoreLostError, StepClient

_log = logging.getLogger(__name__)


class _Answers:
    """Says lines to who started the process, from any thread."""

    def __init__(self) -> None:
        # Libraries print. What they say goes to the log, with the standard error.
        self._out: Final = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        self._lock = threading.Lock()

    def say(self, **content: Any) -> None:
        """Write a line; where nobody reads any more, end the process."""
        try:
            with self._lock:
                print(json.dumps(content), file=self._out, flush=True)
        except OSError:
            _leave_nothing()


class _Commands:
    """Reads commands in a thread of its own, while the first thread trains."""

    def __init__(self, lines: IO[str], answers: _Answers, core: StepClient) -> None:
        """`core` is a client of the listening thread's own."""
        self._lines = lines
        self._answers = answers
        self._core = core
        self._waiting: queue.Queue[dict[str, Any]] = queue.Queue()
        self._satellite: Satellite

    def listen(self) -> NoReturn:
        """Take commands until the input ends, and the process with it."""
        joined = False
        try:
            for line in self._lines:
                command = json.loads(line)
                self._waiting.put(command)
                if command["do"] == LEAVE and joined:  # perhaps it has not begun: then it ends at once
                    self._satellite.leave()
                    with suppress(CoreLostError):  # then it waits to the end
                        self._core.leaving()
                joined = command["do"] == JOIN
        finally:
            _leave_nothing()

    def obey(self, satellite: Satellite) -> NoReturn:
        """Say that it is built, and carry commands out, one after the other."""
        self._satellite = satellite
        satellite.cell.release()
        self._answers.say(said="ready", size=satellite.cell.size, layout=satellite.cell.layout)
        while True:
            command = self._waiting.get()
            self._answers.say(done=command["id"])
            if command["do"] == JOIN:
                satellite.run()

    def beat(self, every_s: float) -> NoReturn:
        """Say again and again that the process lives."""
        while True:
            time.sleep(every_s)
            self._answers.say(said="beat")


def main() -> None:
    """Be a satellite."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    answers = _Answers()
    try:
        _serve(SatelliteOrders.from_line(sys.stdin.readline()), answers)
    except (InputError, CellLostError) as error:
        answers.say(said="failed", reason=str(error))
        _log.error("%s", error)
    except Exception as error:
        answers.say(said="failed", reason=f"{type(error).__name__}: {error}")
        _log.exception("the satellite has failed")
    logging.shutdown()
    os._exit(1)  # a thread reads the input: the interpreter cannot end with it


def _serve(orders: SatelliteOrders, answers: _Answers) -> NoReturn:
    if orders.cpus:
        os.sched_setaffinity(0, orders.cpus)
    core = StepClient(orders.address, orders.key, orders.cell, timeout_s=orders.transfer_s)
    commands = _Commands(sys.stdin, answers, core)
    for work, arguments in ((commands.listen, ()), (commands.beat, (orders.beat_s,))):
        threading.Thread(target=work, args=arguments, daemon=True).start()
    shared = None if orders.shared is None else SharedSnapshots(orders.shared)
    with (
        open_cell(orders.recipe) as cell,
        StepClient(orders.address, orders.key, orders.cell, timeout_s=orders.transfer_s) as client,
    ):
        commands.obey(Satellite(cell, client, snapshots=shared, wait_s=orders.wait_s, retry_s=orders.retry_s))


def _leave_nothing() -> NoReturn:
    """End this process and its ranks, whatever they are at: nobody is there for whom they could work."""
    for rank in multiprocessing.active_children():
        rank.kill()
    os._exit(0)


if __name__ == "__main__":
    main()
