"""The least GPU time that serving an execution can take: the work term of the clairvoyant bound.

An engine is busy with one prefill batch or one decode iteration at a time. An iteration over n sequences takes
F(n) + sum over them of (b + c * context), with F(n) = a + e*(1 - (1 - k/E)^n). The second part is each token's own. The
first is shared, and an iteration's tokens may be charged anything that never exceeds it. Let u_i >= 0 be shares of the
engine that sum to at most 1 in every possible batch, and charge token i

    H(u_i) = u_i * F(1/u_i),  H(0) = 0.

F is concave, so its perspective H is concave and, as F(0) >= 0, never decreases; hence by Jensen's inequality
sum of H(u_i) <= n * H(mean u) <= n * H(1/n) = F(n): the charges never exceed what the iteration takes. Two shares fit
every batch: 1/max_running, and the sequence's part of the KV memory. So does any mixture of the two, and the one that
gives the most is taken. H is concave in the context too, so a call's tokens sum to at least their number times the mean
of the first's and the last's charge. A prefill batch pays p0 once and holds max_prefill_tokens or one longer call: a
call of N new tokens is charged p0 * min(1, N / max_prefill_tokens).
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from gyre.arrays import FloatArray, Int32Array, Int64Array
from gyre.compiler import kernel
from gyre.workload.program import Program

from .hardware_profile import HardwareProfile
from .unloaded import context_sum, new_tokens, served_calls

_SLOT_WEIGHTS: Final = np.linspace(0.0, 1.0, 5)  # of 1/max_running in the mixture; any set of values is valid


def serving_work_gpu_s(program: Program, hardware: HardwareProfile, timeout_s: float = math.inf) -> FloatArray:
    """Smallest GPU-seconds to serve each execution, in the best batches that the engine allows; (E,) float64.

    The sum over any set of executions is a lower bound on the GPU time that serving them takes, on engines that cache
    no prefix across executions and run prefill and decode one after the other. KV that a branch shares with the thread
    it left is charged to nobody. With `timeout_s`, only calls that end by then even in an unloaded run are counted; a
    loaded run may lose more calls to the time-out, and then does less work than this.
    """
    counted = served_calls(program, hardware, timeout_s)
    calls = _Calls(
        program.call_start,
        program.thread,
        program.prefix_call,
        program.prefix_tokens,
        program.input_tokens,
        program.output_tokens,
        counted,
    )
    shared_ms = np.zeros((program.executions, _SLOT_WEIGHTS.size))
    _charge_decode(calls, _costs(hardware), _SLOT_WEIGHTS, shared_ms)
    best = int(np.argmax(shared_ms.sum(axis=0)))
    owners = np.repeat(np.arange(program.executions), np.diff(program.call_start))
    own_s = np.where(counted, _own_seconds(program, hardware), 0.0)
    per_execution_s = np.bincount(owners, weights=own_s, minlength=program.executions)
    work: FloatArray = hardware.engine.gpus_per_engine * (per_execution_s + shared_ms[:, best] / 1e3)
    return work


def _own_seconds(program: Program, hardware: HardwareProfile) -> FloatArray:
    """Engine seconds of each call that no batch shares: prefill's tokens, and b + c * context a token; (C,)."""
    new = new_tokens(program).astype(np.float64)
    p, decode = hardware.prefill, hardware.decode
    base_ms = p.p0_ms * np.minimum(1.0, new / hardware.engine.max_prefill_tokens)
    prefill_ms = base_ms + p.p1_ms * new + p.p2_ms * new * (program.input_tokens - new / 2.0)
    decode_ms = decode.b_ms * (program.output_tokens - 1) + decode.c_ms * context_sum(program)
    seconds: FloatArray = (prefill_ms + decode_ms) / 1e3
    return seconds


class _Calls(NamedTuple):
    """What the charges depend on; see `Program`."""

    call_start: Int64Array
    thread: Int32Array
    prefix_call: Int32Array
    prefix_tokens: Int64Array
    input_tokens: Int64Array
    output_tokens: Int64Array
    counted: npt.NDArray[np.bool_]


class _Costs(NamedTuple):
    """The shared part of a decode iteration, and what a sequence takes of the engine."""

    a_ms: float
    e_ms: float
    missed: float  # 1 - k/E
    slot_share: float  # 1/max_running
    state_share: float  # of KV memory: a sequence's fixed state
    token_share: float  # of KV memory: one token


def _costs(hardware: HardwareProfile) -> _Costs:
    decode, memory_bytes = hardware.decode, hardware.engine.kv_memory_bytes
    state_bytes = hardware.sequence_kv_bytes(0)
    return _Costs(
        a_ms=decode.a_ms,
        e_ms=decode.e_ms,
        missed=1.0 - decode.experts_per_token / decode.experts,
        slot_share=1.0 / hardware.engine.max_running,
        state_share=state_bytes / memory_bytes,
        token_share=(hardware.sequence_kv_bytes(1) - state_bytes) / memory_bytes,
    )


@kernel
def _charge(costs: _Costs, slot_weight: float, memory_share: float) -> float:
    """H(u) in ms for a mixture of the two shares."""
    share = min(slot_weight * costs.slot_share + (1.0 - slot_weight) * memory_share, 1.0)
    if share <= 0.0:
        return 0.0
    return float(share * (costs.a_ms + costs.e_ms * (1.0 - costs.missed ** (1.0 / share))))


@kernel
def _charge_decode(calls: _Calls, costs: _Costs, slot_weights: FloatArray, charged_ms: FloatArray) -> None:
    """Add up each execution's charges into `charged_ms`, (E, weights)."""
    borrowed = np.zeros(calls.input_tokens.size, np.int64)  # leading tokens whose KV belongs to another thread
    for execution in range(calls.call_start.size - 1):
        first = calls.call_start[execution]
        for call in range(first, calls.call_start[execution + 1]):
            parent = first + calls.prefix_call[call]
            if parent >= first:
                borrowed[call] = calls.prefix_tokens[call]
                if parent < call and calls.thread[parent] == calls.thread[call]:
                    borrowed[call] = min(borrowed[call], borrowed[parent])
            iterations = calls.output_tokens[call] - 1
            if iterations < 1 or not calls.counted[call]:
                continue
            held = calls.input_tokens[call] - borrowed[call] + 1
            low_share = costs.state_share + costs.token_share * held
            high_share = low_share + costs.token_share * (iterations - 1)
            for w in range(slot_weights.size):
                low_ms = _charge(costs, slot_weights[w], low_share)
                high_ms = _charge(costs, slot_weights[w], high_share)
                charged_ms[execution, w] += iterations * (low_ms + high_ms) / 2.0
