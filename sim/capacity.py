"""How many executions a cell serves: the C of the water level, calibrated from hardware and workload."""

from __future__ import annotations

from typing import Final

from gyre.config import RunSettings
from gyre.workload.program import Program

from .hardware_profile import HardwareProfile

DEFAULT_SPEED_SHARE: Final = 0.25  # one sequence alone reads few experts: at half its speed an engine is nearly empty


def cell_capacity(settings: RunSettings, hardware: HardwareProfile, program: Program) -> int:
    """Return the executions that one elastic cell serves; `cluster.capacity` if that is set.

    A cell decodes n sequences at the speed that the settings state, as a speed or as a share of the unloaded one
    (`HardwareProfile.capacity`). An execution has a sequence in decode only for part of its time: with D seconds of
    decode at that speed and W seconds of waits for tools it is D / (D + W), so n sequences in decode belong to
    n * (D + W) / D executions. At most `max_running` to an engine.
    """
    cluster = settings.cluster
    if cluster.capacity is not None:
        return cluster.capacity
    context = mean_context_tokens(program)
    unloaded_s = hardware.decode_step_s(1, context)
    share = cluster.speed_share or DEFAULT_SPEED_SHARE
    if cluster.sequence_tokens_per_s is not None:
        share = min(1.0, cluster.sequence_tokens_per_s * unloaded_s)
    decode_s = float(program.output_tokens.sum()) * unloaded_s / share
    executions = hardware.capacity(share, context) * (decode_s + float(program.wait_s.sum())) / decode_s
    return int(min(executions, hardware.engine.max_running * hardware.engines_per_cell))


def mean_context_tokens(program: Program) -> int:
    """Return the mean input of a call in tokens, weighted by its output: the context of a sequence in decode."""
    weight = program.output_tokens
    return int((program.input_tokens * weight).sum() / max(1, int(weight.sum())))
