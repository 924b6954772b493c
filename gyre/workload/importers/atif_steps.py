"""Turns the steps of one ATIF trajectory into calls and tool calls."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ...role import Role
from ..findings import Places
from ..schema import Relation, WaitKind
from .drafts import DraftCall, DraftTool
from .fields import count, count_or_none, epoch_s, mapping, objects, seconds_or_none, text
from .log import ImportLog
from .relate import relate


@dataclass(frozen=True, slots=True)
class Spawn:
    """A reference to a sub-agent's trajectory, and the latest call before it, if there is one."""

    ref: dict[str, Any]
    call: DraftCall | None


def steps_to_calls(
    document: dict[str, Any], thread: int, parent_thread: int | None, origin: str, log: ImportLog
) -> tuple[list[DraftCall], list[DraftTool], list[Spawn]]:
    """Calls, tool calls and spawned sub-agents of the document's steps, in order; a bad step is logged and skipped."""
    calls: list[DraftCall] = []
    tools: list[DraftTool] = []
    spawns: list[Spawn] = []
    reader = _StepReader(document, thread, parent_thread)
    steps = document.get("steps")
    if not isinstance(steps, list):
        log.skip(origin, "no_steps", "`steps` is no list")
        return calls, tools, spawns
    for position, step in enumerate(steps):
        try:
            call = reader.take(step)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            says = "a step lacks a usable field"
            log.skip(origin, "bad_step", says, row=position, places=Places.ENTRIES, example=repr(error))
            continue
        if call is not None:
            calls.append(call)
            tools += _tools(step, call)
        spawns += [Spawn(ref, calls[-1] if calls else None) for ref in sub_agent_refs(step)]
    for before, call in pairwise(calls):
        relate(call, before)
    return calls, tools, spawns


def sub_agent_refs(step: Any) -> list[dict[str, Any]]:
    """The sub-agent references in a step's observation; none if the step is no object."""
    refs: list[dict[str, Any]] = []
    for result in objects(mapping(mapping(step).get("observation")).get("results")):
        named = result.get("subagent_trajectory_ref")
        refs += objects(named if isinstance(named, list) else [named])
    return refs


class _StepReader:
    """Keeps what the next step's call depends on: when the step before ended, and who wrote it."""

    def __init__(self, document: dict[str, Any], thread: int, parent_thread: int | None) -> None:
        agent = mapping(document.get("agent"))
        self._thread, self._parent_thread = thread, parent_thread
        self._agent, self._model = text(agent.get("name")), text(agent.get("model_name"))
        self._before_s: float | None = None
        self._source: str | None = None
        self._called = False

    def take(self, step: dict[str, Any]) -> DraftCall | None:
        """The call that the step holds, if it holds one."""
        stamp = step.get("timestamp")
        end_s = None if stamp is None else epoch_s(stamp)
        call = None
        if step["source"] == "agent" and isinstance(step.get("metrics"), dict) and not step.get("is_copied_context"):
            call = self._call(step, end_s)
        self._source = step["source"]
        self._before_s = self._before_s if end_s is None else end_s
        return call

    def _call(self, step: dict[str, Any], end_s: float | None) -> DraftCall | None:
        metrics = step["metrics"]
        if metrics.get("prompt_tokens") is None or metrics.get("completion_tokens") is None:
            return None
        start_s = end_s if self._before_s is None else self._before_s
        model_s = _duration(step)
        if end_s is not None and start_s is not None:
            between_s = max(0.0, end_s - start_s)
            model_s = between_s if model_s is None else model_s
            start_s = end_s - min(model_s, between_s) if self._before_s is not None else end_s - model_s
        person = self._called and self._source == "user"
        compacted = self._called and self._source == "system"
        self._called = True
        return DraftCall(
            thread=self._thread,
            parent_thread=self._parent_thread,
            role=Role.SUB_AGENT if self._thread else Role.MAIN,
            agent=self._agent,
            input_tokens=count(metrics["prompt_tokens"]),
            output_tokens=count(metrics["completion_tokens"]),
            cached_tokens=count_or_none(metrics.get("cached_tokens")),
            relation=Relation.COMPACTION if compacted else Relation.ROOT,
            start_s=start_s,
            model_s=model_s,
            wait_kind=WaitKind.HUMAN if person else WaitKind.QUEUE if compacted else WaitKind.TOOL,
            model=text(step.get("model_name")) or self._model,
        )


def _duration(step: dict[str, Any]) -> float | None:
    """Time in the model, where the step says it."""
    for extra, name in ((step.get("extra"), "llm_duration_s"), (step["metrics"].get("extra"), "duration_s")):
        value = seconds_or_none(mapping(extra).get(name))
        if value is not None:
            return max(0.0, value)
    return None


def _tools(step: dict[str, Any], call: DraftCall) -> list[DraftTool]:
    return [
        DraftTool(call, text(tool.get("function_name")), text(tool.get("tool_call_id")), call.end_s)
        for tool in objects(step.get("tool_calls"))
    ]
