"""From the records of a run to the hardware profile that the simulator needs, with its error on that run."""

from __future__ import annotations

from .calibration import Calibration, calibrate, measured_hardware, predicted_again, to_json
from .profile import write_profile
from .resimulated import Compared, RunFigures, compared, same_settings, simulated

__all__ = [
    "Calibration",
    "Compared",
    "RunFigures",
    "calibrate",
    "compared",
    "measured_hardware",
    "predicted_again",
    "same_settings",
    "simulated",
    "to_json",
    "write_profile",
]
