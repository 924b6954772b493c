"""The calls of one made-up conversation: contexts that grow, are asked again, cut off, written anew and compacted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from trajectory_text import VOCABULARY, phrase_book

from gyre.arrays import Int32Array
from gyre.role import Role
from gyre.trajectory.call import CallRecord, Finish

HARNESS: Final = "claude-code"
LOG_ODDS_MEAN, LOG_ODDS_SIGMA = -4.0, 3.0  # of another token than the sampled one: mean log-probability -0.22
POLICY, SMALL_MODEL = "policy", "small"


@dataclass(frozen=True)
class Shape:
    """What an execution is like. Means are of lognormal draws; rates are per call."""

    calls: int = 596
    preamble_tokens: int = 20_000  # system prompt and tools
    sub_preamble_tokens: int = 8_000
    window_tokens: int = 100_000  # context at which the main conversation is compacted
    output_tokens: float = 500.0
    result_tokens: float = 900.0
    summary_tokens: int = 1_500
    kept_tokens: int = 1_000  # copied behind the summary, word for word
    sub_agent_every: int = 95  # turns of main from one sub-agent to the next
    sub_agent_calls: int = 36
    retried: float = 0.005  # asked again: the output is lost
    repeated: float = 0.005  # asked again: the same output is recorded twice
    aborted: float = 0.01
    drifted: float = 0.008
    calls_per_version: int = 150


@dataclass
class Counts:
    """What the calls of an execution hold."""

    calls: int = 0
    input_tokens: int = 0
    unique_tokens: int = 0
    sampled_tokens: int = 0  # unique ones that the policy sampled for a call that is trained


class Recorder:
    """Draws tokens, and keeps the calls and their counts."""

    def __init__(self, rng: np.random.Generator, shape: Shape, execution: str) -> None:
        self.rng, self.shape, self.execution = rng, shape, execution
        self.records: list[CallRecord] = []
        self.roles: list[Role] = []
        self.counts = Counts()
        self.marker = VOCABULARY  # text has smaller ids
        self.clock = 0.0

    @property
    def full(self) -> bool:
        """Whether all calls were made."""
        return self.counts.calls >= self.shape.calls

    def tokens(self, count: int) -> Int32Array:
        """Return `count` (at least 1) tokens of text of which the first stands nowhere else."""
        text = phrase_book().text(self.rng.random(max(count, 1), np.float32))
        text[0], self.marker = self.marker, self.marker + 1
        return text

    def length(self, mean: float) -> int:
        """Draw a number of tokens, 1 or more: lognormal with sigma 0.8."""
        return max(1, int(self.rng.lognormal(np.log(mean) - 0.32, 0.8)))

    def happens(self, rate: float) -> bool:
        """Return True with probability `rate`."""
        return bool(self.rng.random() < rate)

    def commit(
        self,
        prompt: Int32Array,
        output: Int32Array,
        role: Role,
        new_tokens: int,
        *,
        thread: str = "",
        finish: Finish = Finish.TOOL_CALLS,
    ) -> None:
        """Record a call of whose context the tree does not have `new_tokens` yet; role SIDE is another model's."""
        by_policy, number = role is not Role.SIDE, self.counts.calls
        odds = np.exp(LOG_ODDS_MEAN + LOG_ODDS_SIGMA * self.rng.standard_normal(len(output), np.float32))
        logprobs = -np.log(np.float32(1) + odds)  # as a float32 log-softmax gives for its most probable token
        versions = np.full(len(output), number // self.shape.calls_per_version, np.int32)
        if (number + 1) % self.shape.calls_per_version == 0:  # new weights arrive half-way
            versions[len(output) // 2 :] += 1
        took = 0.5 + 0.02 * len(output)
        self.records.append(
            CallRecord(
                execution=self.execution,
                call_id=f"call-{number:06d}",
                sequence=number,
                input_ids=prompt,
                output_ids=output,
                logprobs=logprobs if by_policy else None,
                versions=versions if by_policy else None,
                finish=finish,
                thread=thread,
                parent_thread="main" if thread not in ("", "main") else "",
                harness=HARNESS,
                model=POLICY if by_policy else SMALL_MODEL,
                by_policy=by_policy,
                start_s=self.clock,
                end_s=self.clock + took,
            )
        )
        self.roles.append(role)
        self.clock += took
        self.counts.calls += 1
        self.counts.input_tokens += len(prompt)
        self.counts.unique_tokens += new_tokens


class Conversation:
    """One thread's context. Earlier inputs are views of its buffer, so what is written there stays."""

    def __init__(self, recorder: Recorder, thread: str, role: Role, preamble: Int32Array, known: int) -> None:
        self.recorder, self.thread, self.role = recorder, thread, role
        self.preamble = preamble
        self.capacity = 2 * recorder.shape.window_tokens
        self.restart(preamble, known)

    def restart(self, opening: Int32Array, known: int) -> None:
        """Begin a new window with `opening`, of which the tree has the first `known` tokens."""
        self.capacity = max(self.capacity, 2 * len(opening))
        self.buffer = np.empty(self.capacity, np.int32)
        self.used = len(opening)
        self.buffer[: self.used] = opening
        self.known = known
        self.turn_start = self.used  # of the latest output

    def add(self, tokens: Int32Array) -> None:
        """Append to the context."""
        if self.used + len(tokens) > len(self.buffer):
            self.capacity = 2 * (self.used + len(tokens))
            self.buffer = np.concatenate((self.buffer[: self.used], np.empty(self.capacity - self.used, np.int32)))
        self.buffer[self.used : self.used + len(tokens)] = tokens
        self.used += len(tokens)

    def call(self, output: Int32Array, finish: Finish = Finish.TOOL_CALLS, goes_on: bool = True) -> None:
        """Commit a call on the whole context; its output becomes part of it where the conversation `goes_on`."""
        prompt, start = self.buffer[: self.used], self.used
        new = start - self.known + len(output)
        self.known = start
        if goes_on:
            self.add(output)
            output = self.buffer[start : self.used]
            self.known, self.turn_start = self.used, start
        self.recorder.counts.sampled_tokens += len(output)
        self.recorder.commit(prompt, output, self.role, new, thread=self.thread, finish=finish)

    def turn(self) -> None:
        """Make one turn: a call, what went wrong with it, and a tool result."""
        recorder, shape = self.recorder, self.recorder.shape
        output = recorder.tokens(recorder.length(shape.output_tokens))
        if recorder.happens(shape.retried):
            self.call(recorder.tokens(len(output)), goes_on=False)
        if recorder.happens(shape.aborted) and len(output) > 1:
            self.call(output[: len(output) // 2], Finish.ABORT)
            output = output[len(output) // 2 :]
        self.call(output)
        if recorder.happens(shape.repeated):
            self._repeat()
        if recorder.happens(shape.drifted) and self.used - self.turn_start > 2:
            self._drift()
        self.add(recorder.tokens(recorder.length(shape.result_tokens)))

    def _repeat(self) -> None:
        prompt, output = self.buffer[: self.turn_start], self.buffer[self.turn_start : self.used]
        self.recorder.commit(prompt, output, self.role, 0, thread=self.thread)

    def _drift(self) -> None:
        """Write the latest output anew: from its second half on two tokens became one."""
        start, used = self.turn_start, self.used
        at = (start + used) // 2
        changed = np.concatenate((self.buffer[:at], self.recorder.tokens(1), self.buffer[at + 2 : used]))
        self.restart(changed, at)
        self.turn_start = start

    def compact(self) -> None:
        """Ask for a summary before the last turn, then open a window with it and the last words of the old one."""
        recorder, shape = self.recorder, self.recorder.shape
        request, summary = recorder.tokens(200), recorder.tokens(shape.summary_tokens)
        cut = self.turn_start - 1
        prompt = np.concatenate((self.buffer[:cut], request))
        role = Role.MAIN_SUMMARY if self.role is Role.MAIN else Role.SUB_AGENT_SUMMARY
        recorder.counts.sampled_tokens += len(summary)
        new = max(0, cut - self.known) + len(request) + len(summary)
        recorder.commit(prompt, summary, role, new, thread=self.thread, finish=Finish.STOP)
        kept = self.buffer[self.used - shape.kept_tokens : self.used]
        opening = np.concatenate((self.preamble, recorder.tokens(40), summary, kept))
        self.restart(opening, len(self.preamble))
