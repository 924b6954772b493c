"""What the parts of the simulated cluster share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import simpy

from gyre.config import RunSettings
from gyre.events import Event
from gyre.workload.program import Program

from .hardware_profile import HardwareProfile
from .serving import ServingModel


@dataclass(frozen=True, slots=True)
class Context:
    """One simulated run: its settings, its clock, its serving model, and where events are reported to."""

    settings: RunSettings
    hardware: HardwareProfile
    program: Program
    env: simpy.Environment
    model: ServingModel
    report: Callable[[Event], None]

    @property
    def now_s(self) -> float:
        """Seconds since the run began: SimPy's clock stands still while the serving model runs ahead to an end."""
        return max(float(self.env.now), self.model.now_s)

    def wait(self, seconds: float) -> simpy.Timeout:
        """Return an event `seconds` from now."""
        return self.env.timeout(max(0.0, self.now_s + seconds - float(self.env.now)))

    def after(self, seconds: float, call: Callable[[simpy.Event], None]) -> simpy.Timeout:
        """Call `call` with the event returned `seconds` from now: a third of the cost of a process that only waits."""
        event = self.wait(seconds)
        assert event.callbacks is not None
        event.callbacks.append(call)
        return event
