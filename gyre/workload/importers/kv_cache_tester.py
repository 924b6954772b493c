"""Reads kv-cache-tester's JSON: one session a file, each request with the hashes of its input's blocks.

Equal leading hashes are equal leading tokens, so prefixes are exact to a block (64 tokens). A sub-agent is an entry of
its own among the requests; its `t` is when it ended, the times of its requests count from its start.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ...role import Role
from ..findings import Places, Report
from ..schema import Quality, Relation, WaitKind
from ..trace import Trace
from .assemble import assemble
from .drafts import DraftCall, DraftExecution
from .fields import count, mapping, seconds, seconds_or_none, text
from .files import files_below, json_object, read_json
from .log import ImportLog
from .usable import with_calls

ROUNDING_S: Final = 1.0  # precision of `t`
DEFAULT_BLOCK_TOKENS: Final = 64


@dataclass(slots=True)
class _Request:
    """A call of the session, not yet related to the others, and the hashes of its input's blocks."""

    call: DraftCall
    blocks: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an entry stands: its thread, and when that thread began."""

    begin_s: float = 0.0
    thread: int = 0
    parent_thread: int | None = None
    agent: str = "main"


def detect(path: Path) -> bool:
    """A JSON file with `requests` and `block_size`, or a folder whose JSON files begin with one."""
    files = files_below(path, ".json")
    return any({"requests", "block_size"} <= json_object(file).keys() for file in files[:3])


def read(path: Path) -> tuple[Trace, Report]:
    """Read one session or a folder of them; each is an execution and a group of its own, with people in the loop.

    Raises:
        InputError: no session with a usable request is there.
    """
    log = ImportLog()
    drafts = with_calls(
        _sessions(path, log),
        log,
        source=path,
        what="kv-cache-tester session",
        rule="no_requests",
        says="the session has no usable request",
    )
    return assemble(drafts, join_tolerance_s=ROUNDING_S), log.report()


def _sessions(path: Path, log: ImportLog) -> Iterator[tuple[Path, DraftExecution]]:
    for file in files_below(path, ".json"):
        session = mapping(read_json(file) if path.is_file() else json_object(file))
        if isinstance(session.get("requests"), list):
            yield file, _session(session, file, log)
        else:
            log.skip(file.name, "not_a_session", "the file is no object with a list of `requests`")


def _session(session: dict[str, Any], file: Path, log: ImportLog) -> DraftExecution:
    block = session.get("block_size")
    if isinstance(block, bool) or not isinstance(block, int) or block < 1:
        log.assume(file.name, "block_size", f"no usable `block_size`: {DEFAULT_BLOCK_TOKENS} tokens")
        block = DEFAULT_BLOCK_TOKENS
    requests = sorted(_requests(session["requests"], file, log), key=lambda request: request.call.start_s or 0.0)
    draft = DraftExecution(
        execution_id=text(session.get("id")) or file.stem,
        source="kv-cache-tester",
        harness="claude-code",
        model=next((request.call.model for request in requests if request.call.model), None),
        human_in_loop=True,
        time_quality=Quality.ROUNDED,
        calls=[request.call for request in requests],
    )
    last_of: dict[int, int] = {}
    for number, request in enumerate(requests):
        earlier = [known.blocks for known in requests[:number]]
        parent, shared = _longest_prefix(request.blocks, earlier, last_of.get(request.call.thread))
        if parent is not None:
            _relate(request.call, requests[parent].call, shared * block, block)
        last_of[request.call.thread] = number
    draft.wall_s = max((call.end_s or 0.0 for call in draft.calls), default=None)
    return draft


def _requests(entries: list[Any], file: Path, log: ImportLog) -> list[_Request]:
    """All requests, those of sub-agents on threads of their own; an entry that lacks a field is logged and skipped."""
    found: list[_Request] = []
    threads = 1
    pending = [(entry, _Place()) for entry in entries]
    for number, (entry, place) in enumerate(pending):
        try:
            if entry["type"] != "subagent":
                found.append(_request(entry, place))
                continue
            ended_s = place.begin_s + seconds(entry["t"])
            begin_s = max(0.0, ended_s - seconds(entry["duration_ms"]) / 1e3)
            inner = _Place(begin_s, threads, place.thread, text(entry.get("subagent_type")) or "sub-agent")
            pending.extend((request, inner) for request in entry["requests"])
            threads += 1
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            says = "a request lacks a usable field"
            log.skip(file.name, "bad_request", says, row=number, places=Places.ENTRIES, example=repr(error))
    return found


def _request(entry: dict[str, Any], place: _Place) -> _Request:
    kinds = entry.get("input_types")
    after_tool = isinstance(kinds, list) and "tool_result" in kinds
    call = DraftCall(
        thread=place.thread,
        parent_thread=place.parent_thread,
        role=Role.SUB_AGENT if place.thread else Role.MAIN,
        agent=place.agent,
        input_tokens=count(entry["in"]),
        output_tokens=count(entry["out"]),
        start_s=place.begin_s + seconds(entry["t"]),
        model_s=seconds_or_none(entry.get("api_time")),
        wait_s=seconds_or_none(entry.get("think_time")),
        wait_kind=WaitKind.TOOL if after_tool else WaitKind.HUMAN,
        finish_reason=text(entry.get("stop")),
        model=text(entry.get("model")),
    )
    blocks = np.asarray(entry["hash_ids"], np.int64)
    if blocks.ndim != 1:
        raise ValueError("`hash_ids` is no list of whole numbers")
    return _Request(call, blocks)


def _longest_prefix(
    blocks: npt.NDArray[np.int64], earlier: list[npt.NDArray[np.int64]], predecessor: int | None
) -> tuple[int | None, int]:
    """The earlier call that shares the most leading blocks (the latest on a tie), and how many; None without any.

    The predecessor in the thread is tried first: where it is continued whole, no call can share more of its blocks.
    """
    if predecessor is not None:
        shared = _common(blocks, earlier[predecessor])
        if shared >= len(earlier[predecessor]) - 1 and shared:
            return predecessor, shared
    best, most = None, 0
    for number, candidate in enumerate(earlier):
        shared = _common(blocks, candidate)
        if shared >= max(most, 1):
            best, most = number, shared
    return best, most


def _common(a: npt.NDArray[np.int64], b: npt.NDArray[np.int64]) -> int:
    length = min(len(a), len(b))
    differs = np.flatnonzero(a[:length] != b[:length])
    return int(differs[0]) if len(differs) else length


def _relate(call: DraftCall, parent: DraftCall, shared_tokens: int, block: int) -> None:
    """An append keeps all full blocks of its parent's input but at most the last one, and is no shorter."""
    full = parent.input_tokens // block * block
    call.parent = parent
    call.prefix_tokens = min(shared_tokens, call.input_tokens, full)
    call.dropped_tokens = full - call.prefix_tokens
    whole = call.dropped_tokens <= block and call.input_tokens >= parent.input_tokens
    call.relation = Relation.APPEND if whole else Relation.BRANCH
