"""Trainers with nothing behind them, launches that never come up, and a look at processes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from gyre.backends.cells.satellites import SatelliteLaunch, SatelliteLostError
from gyre.backends.cells.server import Launch, LocalServer
from gyre.backends.engines.launching import ServerSettings
from gyre.backends.on_ray.cell_actor import MakeEngine
from gyre.backends.on_ray.on_node import sglang_on_node
from gyre.backends.publishing.weights import Weights

_STAND_IN = Path(__file__).parents[1] / "deploy" / "scripted_sglang"


def engine(log: Path) -> MakeEngine:
    """Starts the server that stands in for SGLang, as a real one is started."""
    settings = ServerSettings(Path("nowhere"), log, environment={"PYTHONPATH": str(_STAND_IN)})
    return sglang_on_node(settings, ready_s=60.0)


@dataclass
class Trainer:
    """A satellite that fails when it is told to join for the second time."""

    core: str
    size: int = 7
    layout: str = "of one"
    problem: str = ""
    told: list[str] = field(default_factory=list)

    async def join(self) -> None:
        if "join" in self.told:
            self.problem = "its trainer has failed"
            raise SatelliteLostError(f"{self.problem} at {self.core}")
        self.told.append("join")

    async def leave(self) -> None:
        self.told.append("leave")

    async def end(self) -> None:
        self.problem = "it was ended"


def trainer() -> SatelliteLaunch:
    async def launch(cell: int, core: str) -> Trainer:
        return Trainer(core)

    return launch


def sleeper(note: Path) -> MakeEngine:
    """Starts a process that is never ready, and notes its number."""
    return partial(_sleeper, note)


def _sleeper(note: Path, host: str) -> Launch:
    async def launch(weights: Weights) -> LocalServer:
        process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        note.write_text(str(process.pid))
        try:
            await asyncio.Event().wait()
        finally:
            process.kill()
            process.wait()
        raise AssertionError("it waits for ever")

    return launch


def process_at(url: str) -> int:
    """The process that listens there, by its flags."""
    flag = f"--port={urlsplit(url).port}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if flag in (folder / "cmdline").read_bytes().split(b"\0"):
                return int(folder.name)
    raise AssertionError(f"nothing listens at {url}")


def parent(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def runs(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def until(condition: Callable[[], object], seconds: float = 90.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.05)
