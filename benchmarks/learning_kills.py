"""Kills an engine and a satellite's trainer of a run that goes on."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

ENGINE_AFTER, SATELLITE_AFTER = 3, 8  # updates
_LOOK_S: Final = 0.005


class Killer:
    """Follows a run's journal. Each kill takes the processes whose messages go to one log of the run."""

    def __init__(self, folder: Path) -> None:
        """Take the run's folder, which may not be there yet."""
        self._folder = folder
        self._stopped = threading.Event()
        self._serving: set[int] = set()
        self._updates = 0

    def stop(self) -> None:
        """Kill nobody any more."""
        self._stopped.set()

    def run(self) -> None:
        """Kill an engine that serves; some steps later a satellite that has just claimed a micro-step."""
        engine = satellite = False
        for entry in self._entries():
            match entry:
                case {"event": "RunStarted"}:
                    self._serving = {spec["cell"] for spec in entry["cells"]}
                case {"event": "CellChanged" | "CellJoined", "cell": cell}:
                    (self._serving.add if entry.get("state", "serving") == "serving" else self._serving.discard)(cell)
                case {"event": "UpdateApplied"}:
                    self._updates += 1
            if not engine and self._updates >= ENGINE_AFTER and self._serving - {0}:
                engine = self._kill(f"engine-{max(self._serving)}.log")
            claims = entry.get("event") == "MicroStepClaimed" and entry["cell"] > 0
            if claims and not satellite and self._updates >= SATELLITE_AFTER:
                satellite = self._kill(f"trainer-{entry['cell']}.log")
            if engine and satellite:
                return

    def _entries(self) -> Iterator[dict[str, Any]]:
        """Give the journal's entries as they are written."""
        path = self._folder / "journal.jsonl"
        while not path.exists():
            if self._stopped.wait(_LOOK_S):
                return
        with path.open() as journal:
            begun = ""
            while not self._stopped.is_set():
                begun += journal.readline()
                if begun.endswith("\n"):
                    yield json.loads(begun)
                    begun = ""
                else:
                    self._stopped.wait(_LOOK_S)

    def _kill(self, log: str) -> bool:
        """Kill all processes that write to a log; return whether there were any."""
        path = (self._folder / "logs" / log).resolve()
        pids = [pid for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))) if _writes_to(pid, path)]
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        print(f"killed {len(pids)} processes of {log}", flush=True)
        return bool(pids)


def _writes_to(pid: int, path: Path) -> bool:
    with suppress(OSError):
        return os.path.realpath(f"/proc/{pid}/fd/2") == str(path)
    return False
