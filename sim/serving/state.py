"""The model's state: records in NumPy arrays, gathered in one named tuple that the kernels share."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

Record = Any  # a row of a structured array: kernels read and write its fields as attributes
Records = npt.NDArray[Any]  # a structured array
Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

# Phases of an engine.
IDLE: Final = 0
PREFILL: Final = 1
DECODE: Final = 2
DECIDING: Final = 3  # at a boundary, or idle with an arrival: decides once all else at this time has happened
STOPPED: Final = 4  # paused at a boundary

# Stages of a request (a released call that has not finished).
FREE: Final = 0
TOOL: Final = 1  # released, starts after its wait
QUEUED: Final = 2  # in an engine's queue, or in the queue for want of an engine
FILLING: Final = 3  # in a prefill
RUNNING: Final = 4
MOVING: Final = 5  # its KV is on the way to another engine

# Kinds of timers, in their order at one time.
SETUP_TIMER: Final = 0  # set-up of an execution without calls ends
TRANSFER_TIMER: Final = 1
START_TIMER: Final = 2
DEADLINE_TIMER: Final = 3
KIND_SHIFT: Final = 56

# States of an execution.
VACANT: Final = 0
LIVE: Final = 1
ENDED: Final = 2  # not reported yet

# Indices into list(EndReason).
FINISHED: Final = 0
HARNESS_TIMEOUT: Final = 1
OVERALL_TIMEOUT: Final = 2


def _record(**names_by_type: str) -> np.dtype[np.void]:
    return np.dtype([(name, kind) for kind, names in names_by_type.items() for name in names.split()], align=True)


def _source_digest() -> str:
    """Digest of this package's source.

    Numba looks for cached machine code by a kernel's own file and its arguments' types, and would not see a change in a
    kernel that it inlined from another file. With the digest in a type, any change of source compiles anew.
    """
    sources = sorted(Path(__file__).parent.glob("*.py"))
    return sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]


ENGINE: Final = _record(
    f8="step_base_s step_expert_s expert_share step_sequence_s step_context_s prefill_base_s prefill_token_s "
    "prefill_attention_s migration_s_per_token next_s run_start_s run_step_s run_growth_s busy_since_s transfers_end_s "
    "busy_s prefill_s",
    i8="kv_tokens kv_sequence_tokens max_running max_prefill_tokens run_iterations iteration running context_tokens "
    "admissions reserved_tokens idle_tokens load decoded_tokens prefilled_tokens cached_tokens evicted_tokens "
    "migrated_tokens recomputed_tokens",
    i4="phase open paused flush listed oldest newest",
)
REQUEST: Final = _record(
    i8="input_tokens output_tokens prefix_tokens generated_tokens finish_iteration admission",
    i4="execution call thread prefix_thread engine stage previous next carried admitted",
)
THREAD: Final = _record(i8="resident_tokens", i4="home holder idle older newer calls_left")
EXECUTION: Final = _record(f8="ended_s", i8="id template calls_left generated_tokens", i4="stage reason")
QUEUE: Final = _record(i8="length", i4="head tail")
TIMER: Final = _record(f8="key", i8="order item")  # heap of (time, kind and sequence number)
FINISH: Final = _record(i8="key order item")  # heap of (finish iteration, admission)
WORLD: Final = _record(
    f8="now_s rebalance",
    i8="decided sequence rotation engines thread_stride join_stride timers free_request used_requests deciding ended",
    i4=f"source_{_source_digest()}",
)


class State(NamedTuple):
    """Everything the kernels read and write. C calls and E executions of the program, K engines, S execution slots."""

    call_start: Int64Array  # E + 1; this and the next nine are the program's own arrays
    thread: Int32Array  # C
    input_tokens: Int64Array  # C
    output_tokens: Int64Array  # C
    prefix_call: Int32Array  # C
    prefix_tokens: Int64Array  # C
    wait_s: FloatArray  # C
    dependencies: Int32Array  # C
    successor_start: Int64Array  # C + 1
    successor: Int32Array  # X
    join: Int32Array  # C, index among its execution's calls with several dependencies, -1 for other calls
    thread_start: Int64Array  # E + 1, CSR into thread_calls
    thread_calls: Int32Array  # calls of each thread of each execution
    world: Records  # 1
    engines: Records  # K, padded to a power of two
    winners: Int32Array  # tournament over the engines' next_s; root at 1, leaves in the upper half
    queues: Records  # 2K + 1: waiting, in prefill, for want of an engine
    batches: Records  # K x largest batch, heaps of FINISH
    threads: Records  # S * thread_stride
    requests: Records  # released calls; free rows are linked by `next`
    executions: Records  # S
    joins: Int32Array  # S * join_stride, dependencies still to finish
    timers: Records  # heap; at most a deadline and an end of set-up each execution, one each request
    deciding: Int32Array  # K, engines in phase DECIDING
    scratch: Int64Array  # 2 x requests: requests of an engine in some order, and keys to sort them by
    ended: Int32Array  # S, slots of executions that ended and are not reported yet, in order


def grown(array: npt.NDArray[Any], rows: int) -> npt.NDArray[Any]:
    """Copy of `array` with `rows` rows; the new ones are zero."""
    larger = np.zeros((rows, *array.shape[1:]), dtype=array.dtype)
    larger[: array.shape[0]] = array
    return larger
