"""A trace as flat arrays: what a simulator replays.

`Program` is the compiled form of a trace. Executions are rows of CSR arrays over calls; each call knows how many calls
must have finished before it is released and which calls it helps to release, so that parallel sub-agents, joins and
plain turns are one mechanism.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..arrays import FloatArray, Int8Array, Int32Array, Int64Array


@dataclass(frozen=True, slots=True)
class Program:
    """Executions as arrays; E executions, C calls, T threads, P selected paths, X edges of the release graph.

    Call indices in `prefix_call` and `successor` are local to their execution (0 is its first call), so that a slice of
    an execution's rows can be replayed by itself.
    """

    execution_ids: tuple[str, ...]  # E
    group: Int32Array  # E, index into group_ids
    group_ids: tuple[str, ...]
    call_start: Int64Array  # E + 1, CSR: rows of calls of each execution
    thread_count: Int32Array  # E
    setup_s: FloatArray  # E, from dispatch to the release of the first call
    scoring_s: FloatArray  # E
    outcome: Int8Array  # E, index into list(Outcome): what was recorded
    reward: FloatArray  # E, NaN where unknown

    thread: Int32Array  # C, local to the execution
    role: Int8Array  # C, index into list(Role)
    input_tokens: Int64Array  # C
    output_tokens: Int64Array  # C, at least 1
    prefix_call: Int32Array  # C, local call whose context holds the prefix, -1 at a root
    prefix_tokens: Int64Array  # C
    wait_s: FloatArray  # C, from release to start
    dependencies: Int32Array  # C, calls that must finish before this one is released (0: released by set-up)
    successor_start: Int64Array  # C + 1, CSR into successor
    successor: Int32Array  # X, local calls that each call helps to release

    path_start: Int64Array  # E + 1, CSR into path_tokens
    path_tokens: Int64Array  # P, tokens of each root-to-leaf path selected for training (at most J_max an execution)

    @property
    def executions(self) -> int:
        """Number of executions E."""
        return len(self.execution_ids)

    @property
    def calls(self) -> int:
        """Number of calls C."""
        return int(self.call_start[-1])
