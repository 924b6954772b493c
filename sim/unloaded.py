"""An execution by itself: how long it takes when every call has an engine to itself and its prefix in the cache."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from gyre.arrays import FloatArray, Int64Array
from gyre.workload.critical_path import call_ends, execution_ends
from gyre.workload.program import Program

from .hardware_profile import HardwareProfile


def unloaded_seconds(program: Program, hardware: HardwareProfile, timeout_s: float = math.inf) -> FloatArray:
    """Seconds from dispatch to the end of the last call of each execution, alone on the hardware; (E,) float64.

    The critical path through the release graph: set-up, waits, prefill of what is new behind a prefix that is always
    cached, decode in a batch of one whose context grows with every token. No schedule ends an execution sooner on
    engines that share no cache between executions. `timeout_s`, counted from dispatch, caps it. Scoring is not
    included.

    Raises ValueError where an execution's release graph has a cycle or its dependency counts do not fit its edges.
    """
    return execution_ends(program, call_ends(program, call_seconds(program, hardware)), timeout_s)


def served_calls(program: Program, hardware: HardwareProfile, timeout_s: float) -> npt.NDArray[np.bool_]:
    """Which calls end by `timeout_s` after dispatch in an unloaded run; (C,) bool."""
    if math.isinf(timeout_s):
        return np.ones(program.calls, dtype=np.bool_)
    served: npt.NDArray[np.bool_] = call_ends(program, call_seconds(program, hardware)) <= timeout_s
    return served


def call_seconds(program: Program, hardware: HardwareProfile) -> FloatArray:
    """Unloaded seconds of each call, prefill and decode; (C,) float64.

    The prefill yields the first of d tokens, d - 1 iterations the others.
    """
    new = new_tokens(program).astype(np.float64)
    p = hardware.prefill
    prefill_ms = p.p0_ms + p.p1_ms * new + p.p2_ms * new * (program.input_tokens - new / 2.0)
    empty_step_s = hardware.decode_step_s(1, 0)
    context_s = context_sum(program) * (hardware.decode.c_ms / 1e3)
    seconds: FloatArray = prefill_ms / 1e3 + (program.output_tokens - 1) * empty_step_s + context_s
    return seconds


def new_tokens(program: Program) -> Int64Array:
    """Tokens that each call must prefill even if all its prefix is cached; (C,) int64, at least 1.

    An engine computes at least the last token of an input, which yields the first token of the output.
    """
    tokens: Int64Array = np.maximum(program.input_tokens - program.prefix_tokens, 1)
    return tokens


def context_sum(program: Program) -> FloatArray:
    """Contexts summed over each call's decode iterations, in tokens; (C,) float64.

    After an input of x, the d - 1 iterations for d tokens have contexts x + 1, ..., x + d - 1.
    """
    tokens = program.output_tokens.astype(np.float64)
    contexts: FloatArray = (tokens - 1.0) * (program.input_tokens + tokens / 2.0)
    return contexts
