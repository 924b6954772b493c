"""Finds the sub-agent trajectories that an ATIF trajectory refers to and reads each as a thread."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .atif_steps import Spawn, steps_to_calls
from .drafts import DraftCall, DraftExecution
from .fields import objects, text
from .files import json_object
from .log import ImportLog


@dataclass(frozen=True, slots=True)
class _Pending:
    """A trajectory still to be read; `embedded` holds the sub-agent documents that its references may name."""

    document: dict[str, Any]
    parent_thread: int | None
    spawned_by: DraftCall | None
    embedded: dict[str, dict[str, Any]]


def add_threads(draft: DraftExecution, document: dict[str, Any], file: Path, log: ImportLog) -> None:
    """Add the calls and tools of the trajectory and of all sub-agents below it to the draft.

    A sub-agent's calls stand right after the call that spawned it, so that the order holds without timestamps too.
    """
    queue = [_Pending(document, None, None, {})]
    seen: set[int] = set()
    spawned: dict[int, list[list[DraftCall]]] = {}
    for thread, pending in enumerate(queue):
        calls, tools, spawns = steps_to_calls(pending.document, thread, pending.parent_thread, file.name, log)
        draft.tools += tools
        if calls:
            calls[0].spawned_by = pending.spawned_by
        spawned.setdefault(0 if pending.spawned_by is None else id(pending.spawned_by), []).append(calls)
        embedded = {**pending.embedded, **_embedded(pending.document)}
        for spawn in spawns:
            found = _resolve(spawn, embedded, file)
            if found is None:
                log.note(file.name, "sub_agent_missing", "a referenced sub-agent trajectory is not there: left out")
            elif id(found) not in seen:
                seen.add(id(found))
                queue.append(_Pending(found, thread, spawn.call, embedded))
    draft.calls = _spliced(spawned)


def referred_file(ref: dict[str, Any], file: Path) -> Path | None:
    """The file that a reference names, if it lies below the trajectory's folder."""
    name = ref.get("trajectory_path")
    if not isinstance(name, str) or "://" in name:
        return None
    target = (file.parent / name).resolve()
    return target if target.is_relative_to(file.parent.resolve()) and target.is_file() else None


def _spliced(spawned: dict[int, list[list[DraftCall]]]) -> list[DraftCall]:
    """All calls, depth first; `spawned` maps a call's id to the threads that it spawned, 0 to the main thread."""
    ordered: list[DraftCall] = []
    stack = [iter(calls) for calls in spawned.get(0, [])]
    while stack:
        call = next(stack[-1], None)
        if call is None:
            stack.pop()
            continue
        ordered.append(call)
        stack.extend(iter(calls) for calls in reversed(spawned.get(id(call), [])))
    return ordered


def _embedded(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The embedded sub-agent documents by each of their ids."""
    inner = objects(document.get("subagent_trajectories"))
    return {
        name: found for found in inner for field in ("session_id", "trajectory_id") if (name := text(found.get(field)))
    }


def _resolve(spawn: Spawn, embedded: dict[str, dict[str, Any]], file: Path) -> dict[str, Any] | None:
    """The document that a reference names: embedded, by `trajectory_id` (before 1.7 `session_id`), or in a file."""
    for name in ("trajectory_id", "session_id"):
        if str(spawn.ref.get(name)) in embedded:
            return embedded[str(spawn.ref.get(name))]
    target = referred_file(spawn.ref, file)
    if target is None:
        return None
    document = json_object(target)
    if document:
        embedded[str(spawn.ref.get("trajectory_path"))] = document
    return document or None
