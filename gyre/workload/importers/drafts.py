"""What an importer reads from a log before calls are numbered: executions, calls and tools as plain records."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...outcome import Outcome
from ...role import Role
from ..schema import Quality, Relation, WaitKind


@dataclass(slots=True, eq=False)
class DraftCall:
    """One model call; times in seconds since the execution's start, None where the source does not say."""

    thread: int
    input_tokens: int
    output_tokens: int
    role: Role = Role.MAIN
    parent_thread: int | None = None
    spawned_by: DraftCall | None = None  # on a thread's first call, where the source names the call that spawned it
    agent: str | None = None
    parent: DraftCall | None = None
    relation: Relation = Relation.ROOT
    prefix_tokens: int = 0
    dropped_tokens: int = 0
    cached_tokens: int | None = None
    start_s: float | None = None
    model_s: float | None = None
    wait_s: float | None = None  # as recorded; None: the time between release and start
    wait_kind: WaitKind | None = None  # None: tool; start and subagent_join are set by `number_calls`
    finish_reason: str | None = None
    model: str | None = None

    @property
    def context_tokens(self) -> int:
        """Tokens of input and output together."""
        return self.input_tokens + self.output_tokens

    @property
    def end_s(self) -> float | None:
        """When the call ended, its start if the model time is unknown."""
        return None if self.start_s is None else self.start_s + (self.model_s or 0.0)


@dataclass(slots=True, eq=False)
class DraftTool:
    """One tool call and the model call that asked for it."""

    call: DraftCall
    tool: str | None = None
    tool_call_id: str | None = None
    start_s: float | None = None
    duration_s: float | None = None
    failed: bool | None = None


@dataclass(slots=True)
class DraftExecution:
    """One execution; `calls` in the order in which the source lists them (within a thread: the order of time)."""

    execution_id: str
    source: str
    group_id: str | None = None  # None: a group of its own
    task: str | None = None
    harness: str | None = None
    model: str | None = None
    outcome: Outcome = Outcome.COMPLETED
    reward: float | None = None
    setup_s: float = 0.0
    scoring_s: float = 0.0
    score_failed: bool = False
    wall_s: float | None = None
    human_in_loop: bool = False
    censored: bool = False
    token_quality: Quality = Quality.RECORDED
    time_quality: Quality = Quality.RECORDED
    prefix_quality: Quality = Quality.RECORDED
    calls: list[DraftCall] = field(default_factory=list)
    tools: list[DraftTool] = field(default_factory=list)

    def count_time_from_first_call(self) -> None:
        """Make all times count from the start of the first call, and take the last call's end for the wall time.

        Times are rounded to a microsecond: that is what epoch times can hold.
        """
        begin = min((call.start_s for call in self.calls if call.start_s is not None), default=None)
        if begin is None:
            return
        for call in self.calls:
            call.start_s = None if call.start_s is None else round(call.start_s - begin, 6)
            call.model_s = None if call.model_s is None else round(call.model_s, 6)
        for tool in self.tools:
            tool.start_s = None if tool.start_s is None else round(tool.start_s - begin, 6)
            tool.duration_s = None if tool.duration_s is None else round(tool.duration_s, 6)
        self.wall_s = max(call.end_s for call in self.calls if call.end_s is not None)
