"""What a cell, and each of its GPUs, is used for."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class CellUse(StrEnum):
    """What a cell is doing; at each moment of a run a cell has exactly one use."""

    SERVING = "serving"  # serves, or drains what it still serves
    TRAINING = "training"  # a micro-step is running
    WAITING_FOR_SAMPLES = "waiting_for_samples"  # in the training role, nothing to claim
    WAITING_FOR_OTHERS = "waiting_for_others"  # in the training role, the step is being finished by other cells
    UPDATING = "updating"  # the core sums gradients and makes the update
    PUBLISHING = "publishing"  # new weights are on their way to the serving engines
    SWITCHING = "switching"  # moves between the roles
    FAILED = "failed"


class GpuUse(StrEnum):
    """`CellUse` with serving split by the cells' own meters; every GPU-second of a run has exactly one."""

    SERVING_BUSY = "serving_busy"  # at least one request in flight
    SERVING_UNMETERED = "serving_unmetered"  # serving after the cell's last load report, or without any
    TRAINING = "training"
    UPDATING = "updating"
    PUBLISHING = "publishing"
    SWITCHING = "switching"
    SERVING_IDLE = "serving_idle"
    WAITING_FOR_SAMPLES = "waiting_for_samples"
    WAITING_FOR_OTHERS = "waiting_for_others"
    FAILED = "failed"


IDLE_USES: Final = (GpuUse.SERVING_IDLE, GpuUse.WAITING_FOR_SAMPLES, GpuUse.WAITING_FOR_OTHERS, GpuUse.FAILED)
OVERHEAD_USES: Final = (GpuUse.UPDATING, GpuUse.PUBLISHING, GpuUse.SWITCHING)

USE_TITLES: Final[dict[str, str]] = {
    CellUse.SERVING: "serving",
    GpuUse.SERVING_BUSY: "serving, busy",
    GpuUse.SERVING_IDLE: "serving, no request",
    GpuUse.SERVING_UNMETERED: "serving, not metered",
    CellUse.TRAINING: "training",
    CellUse.WAITING_FOR_SAMPLES: "waiting for samples",
    CellUse.WAITING_FOR_OTHERS: "waiting for other cells",
    CellUse.UPDATING: "updating",
    CellUse.PUBLISHING: "publishing",
    CellUse.SWITCHING: "switching",
    CellUse.FAILED: "failed",
}
