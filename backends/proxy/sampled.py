"""What engines sampled for one call, token by token."""

from __future__ import annotations

import math
from array import array

import numpy as np

from gyre.trajectory.call import CallRecord, Finish, Placement

from ..engines.engine import Chunk
from .call import Call
from .tokens import Prompt


class Sampled:
    """The output so far: m tokens with log-probabilities and versions."""

    def __init__(self) -> None:
        """Start with nothing."""
        self.token_ids = array("i")
        self._logprobs = array("f")
        self._versions = array("i")
        self.finish: Finish | None = None  # as the engine says
        self.cached_tokens = 0
        self.queued_s = math.nan  # when the call asked for an engine, by the event loop's clock as all times here
        self.first_s = math.nan  # when the first token came
        self.places: list[tuple[str, float, int]] = []  # engine, when it was given the call, tokens there already

    def take(self, chunk: Chunk) -> None:
        """Add a chunk."""
        self.token_ids.extend(chunk.token_ids)
        self._logprobs.extend(chunk.logprobs)
        self._versions.extend(chunk.versions)
        if chunk.exact_versions is not None:
            self._versions = array("i", chunk.exact_versions)
        if chunk.finish is not None:
            self.finish = chunk.finish
            self.cached_tokens = chunk.cached_tokens

    def record(self, call: Call, prompt: Prompt, finish: Finish, *, delivered: bool, now_s: float) -> CallRecord:
        """Return the call's record; it takes the execution's next sequence number, so append it before any other."""
        execution, labels = call.execution, call.labels
        sequence = execution.next_sequence
        execution.next_sequence += 1
        return CallRecord(
            execution=execution.id,
            call_id=call.id,
            sequence=sequence,
            input_ids=np.ascontiguousarray(prompt.input_ids, np.int32),
            output_ids=np.array(self.token_ids, np.int32),
            logprobs=np.array(self._logprobs, np.float32),
            versions=np.array(self._versions, np.int32),
            finish=finish,
            thread=labels.thread,
            parent_thread=labels.parent_thread,
            role=labels.role,
            harness=labels.harness,
            model=call.request.model,
            delivered=delivered,
            start_s=execution.elapsed_s(call.received_s),
            end_s=execution.elapsed_s(now_s),
            queued_s=execution.elapsed_s(self.queued_s),
            first_s=execution.elapsed_s(self.first_s),
            cached_tokens=-1 if self.finish is None else self.cached_tokens,
            placements=tuple(Placement(name, execution.elapsed_s(at_s), tokens) for name, at_s, tokens in self.places),
        )
