"""Turns the lines of one Claude Code thread into calls and tool calls."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from ...role import Role
from ..schema import Relation, WaitKind
from .drafts import DraftCall, DraftTool
from .fields import count, epoch_s, mapping, objects, seconds, text
from .log import ImportLog
from .relate import relate

SYNTHETIC_MODEL: Final = "<synthetic>"  # the harness's own messages, such as API errors
_INPUT_FIELDS: Final = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


@dataclass(frozen=True, slots=True)
class _Usage:
    """A message's token counts; the input counts what was read from and written to the provider's cache."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int

    @classmethod
    def of(cls, usage: dict[str, Any]) -> _Usage:
        """The counts of a `usage` object; `ValueError` if one is no count."""
        inputs = sum(count(usage.get(name) or 0) for name in _INPUT_FIELDS)
        return cls(inputs, count(usage["output_tokens"]), count(usage.get("cache_read_input_tokens") or 0))


class ThreadReader:
    """Reads the lines of one thread in order; `finish` must be called after the last.

    A call whose input is at least its predecessor's appends to it, with all of the predecessor's context (at most the
    whole input) as prefix. A shorter input is a branch, or after a `compact_boundary` line a compaction; its prefix is
    what the provider read from its cache. The summary call of a compaction is not logged: it is set from the boundary's
    `preTokens` (input), `postTokens` (output) and `durationMs`, and marked by its role.

    Times are seconds since the epoch until the session shifts them.
    """

    def __init__(self, thread: int, parent_thread: int | None, agent: str, origin: str, log: ImportLog) -> None:
        self.calls: list[DraftCall] = []
        self.tools: list[DraftTool] = []
        self.people = False  # whether a person wrote after the first prompt
        self.estimated = False  # whether a token count was set by a rule
        self._thread, self._parent_thread, self._agent = thread, parent_thread, agent
        self._origin, self._log = origin, log
        self._by_message: dict[str, DraftCall] = {}
        self._open_tools: dict[str, DraftTool] = {}
        self._trigger_s: float | None = None
        self._trigger_kind = WaitKind.TOOL
        self._compacted = False

    def add(self, number: int, record: dict[str, Any]) -> None:
        """Take one line; one that should be a call or a result but lacks a field is logged and skipped."""
        try:
            self._take(record)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            says = f"a line of type {record.get('type')!r} lacks a usable field"
            self._log.skip(self._origin, "bad_line", says, row=number, example=repr(error))

    def finish(self) -> None:
        """Infer each call's relation to the one before it in the thread."""
        for before, call in pairwise(self.calls):
            relate(call, before)

    def _take(self, record: dict[str, Any]) -> None:
        kind = record.get("type")
        if kind == "assistant":
            self._assistant(record)
        elif kind == "system" and record.get("subtype") == "compact_boundary":
            self._compaction(record)
        elif kind in ("user", "attachment") and record.get("timestamp"):
            self._trigger_s = epoch_s(record["timestamp"])
            if kind == "user":
                self._user(record)

    def _user(self, record: dict[str, Any]) -> None:
        content = objects(mapping(record.get("message")).get("content"))
        results = [part for part in content if part.get("type") == "tool_result"]
        for result in results:
            tool = self._open_tools.pop(str(result.get("tool_use_id")), None)
            if tool is not None and tool.start_s is not None and self._trigger_s is not None:
                tool.duration_s = max(0.0, self._trigger_s - tool.start_s)
                tool.failed = bool(result.get("is_error"))
        self._trigger_kind = WaitKind.TOOL
        written = not results and not record.get("isMeta") and not record.get("isCompactSummary")
        if written and self.calls and self._thread == 0 and not self._compacted:
            self._trigger_kind, self.people = WaitKind.HUMAN, True

    def _assistant(self, record: dict[str, Any]) -> None:
        message = record["message"]
        if message.get("model") == SYNTHETIC_MODEL:
            self._log.note(self._origin, "synthetic_message", "a message of the harness itself, which is no model call")
            return
        usage, end_s = _Usage.of(message["usage"]), epoch_s(record["timestamp"])
        call = self._by_message.get(message["id"])
        if call is None:
            call = self._by_message[message["id"]] = self._new_call(message, usage, end_s)
        if usage.output_tokens >= call.output_tokens:
            call.input_tokens, call.cached_tokens = usage.input_tokens, usage.cached_tokens
            call.output_tokens = usage.output_tokens
        call.finish_reason = text(message.get("stop_reason")) or call.finish_reason
        call.model_s = max(call.model_s or 0.0, end_s - (call.start_s or end_s))
        for part in objects(message.get("content")):
            if part.get("type") == "tool_use":
                tool = DraftTool(call, text(part.get("name")), text(part.get("id")), end_s)
                self.tools.append(tool)
                self._open_tools[str(part.get("id"))] = tool

    def _new_call(self, message: dict[str, Any], usage: _Usage, end_s: float) -> DraftCall:
        call = DraftCall(
            thread=self._thread,
            parent_thread=self._parent_thread,
            role=Role.SUB_AGENT if self._thread else Role.MAIN,
            agent=self._agent,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            start_s=end_s if self._trigger_s is None else self._trigger_s,
            wait_kind=self._trigger_kind,
            relation=Relation.COMPACTION if self._compacted else Relation.ROOT,
            model=text(message.get("model")),
        )
        self.calls.append(call)
        self._compacted = False
        return call

    def _compaction(self, record: dict[str, Any]) -> None:
        self._compacted = True
        self._trigger_s = end_s = epoch_s(record["timestamp"])
        meta = mapping(record.get("compactMetadata"))
        if not self.calls or not all(meta.get(name) for name in ("preTokens", "postTokens", "durationMs")):
            says = "a compaction without `preTokens`, `postTokens` or `durationMs`: its summary call is left out"
            self._log.note(self._origin, "summary_call_unknown", says)
            return
        before, model_s = self.calls[-1], max(0.0, seconds(meta["durationMs"]) / 1e3)
        summary = DraftCall(
            thread=self._thread,
            parent_thread=self._parent_thread,
            role=Role.SUB_AGENT_SUMMARY if self._thread else Role.MAIN_SUMMARY,
            agent=self._agent,
            input_tokens=max(count(meta["preTokens"]), before.input_tokens),
            output_tokens=count(meta["postTokens"]),
            start_s=end_s - model_s,
            model_s=model_s,
            model=before.model,
        )
        self.calls.append(summary)
        self.estimated = True
        says = "the summary call of a compaction, set from the boundary's `preTokens`, `postTokens` and `durationMs`"
        self._log.assume("calls", "summary_call", says, example=self._origin)
