"""Durations of executions at a stated speed, without any queue: what a published mean can be compared with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...arrays import FloatArray, Int32Array
from ...outcome import Outcome
from ..compile import compile_program
from ..critical_path import call_ends, execution_ends
from ..trace import Trace
from .profile import Profile, Timeouts

_NO_RUN = list(Outcome).index(Outcome.ENV_SETUP_FAILED)


@dataclass(frozen=True, slots=True)
class NominalDurations:
    """Seconds for E executions in G groups.

    A group lasts as long as its longest execution. Means over these are restricted means: nothing lasts longer than its
    time-out.
    """

    unlimited_s: FloatArray  # E, dispatch to the end of the last call, as if there were no time-out
    execution_s: FloatArray  # E, dispatch to score: cut at the time-outs, then scored
    harness_timeout: npt.NDArray[np.bool_]  # E
    overall_timeout: npt.NDArray[np.bool_]  # E
    group: Int32Array  # E
    group_s: FloatArray  # G


def nominal_durations(trace: Trace, profile: Profile) -> NominalDurations:
    """Durations of a valid trace's executions at the profile's nominal speeds and under its time-outs.

    A call takes (input - prefix) / prefill speed + output / decode speed; waits, joins of sub-agents, set-up and
    scoring are the trace's. A failed set-up makes the execution end when its set-up does.

    Raises:
        InputError: the trace cannot be compiled; see `compile_program`.
    """
    program = compile_program(trace, max_paths=1)
    service_s = (
        program.output_tokens / profile.nominal.decode_tokens_per_s
        + (program.input_tokens - program.prefix_tokens) / profile.nominal.prefill_tokens_per_s
    )
    unlimited = execution_ends(program, call_ends(program, service_s))
    harness, overall = _limits(profile.timeouts)
    ran = program.outcome != _NO_RUN
    end = np.minimum(unlimited, min(harness, overall))
    overall_timeout = (unlimited >= overall) & (overall <= harness)
    scored = ran & ~overall_timeout
    execution = end + np.where(scored, program.scoring_s, 0.0)
    group_s = np.zeros(len(program.group_ids))
    np.maximum.at(group_s, program.group, execution)
    return NominalDurations(
        unlimited_s=unlimited,
        execution_s=execution,
        harness_timeout=(unlimited >= harness) & ~overall_timeout & ran,
        overall_timeout=overall_timeout,
        group=program.group,
        group_s=group_s,
    )


def _limits(timeouts: Timeouts) -> tuple[float, float]:
    return timeouts.harness_s or np.inf, timeouts.overall_s or np.inf
