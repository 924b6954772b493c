"""Reads Mooncake's JSON lines: arrival in ms, lengths of input and output, hashes of the input's 512-token blocks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ..findings import Report
from ..schema import Quality, Relation, WaitKind
from ..trace import Trace
from .assemble import assemble
from .drafts import DraftCall, DraftExecution
from .fields import count, seconds
from .files import files_below, head_objects, json_lines, nothing_left
from .log import ImportLog

BLOCK_TOKENS: Final = 512
_FIELDS: Final = {"timestamp", "input_length", "output_length", "hash_ids"}


@dataclass(slots=True)
class _Session:
    """A chain of requests; `hashes` are the full blocks of its latest input."""

    draft: DraftExecution
    arrival_s: float
    hashes: list[int]


def detect(path: Path) -> bool:
    """A `.jsonl` file (or the first in a folder) whose first lines have Mooncake's four fields."""
    return any(found.keys() >= _FIELDS for file in files_below(path, ".jsonl")[:1] for found in head_objects(file))


def read(path: Path) -> tuple[Trace, Report]:
    """Read one file or a folder of them; requests that continue one another become one execution.

    A request continues the session whose latest input is no longer than its own and has full blocks (two or more, since
    all requests share the first) that its own blocks begin with; the longest such session, once. Its wait is the time
    between the two arrivals, which holds the unrecorded time in the model too.

    Raises:
        InputError: no usable request is there.
    """
    log = ImportLog()
    drafts = [draft for file in files_below(path, ".jsonl") for draft in _sessions(file, log)]
    if not drafts:
        raise nothing_left(path, "Mooncake request", log.report())
    chained = sum(len(draft.calls) - 1 for draft in drafts)
    log.assume(
        "calls", "session", "a request that extends the full blocks of an earlier one continues it", count=chained
    )
    return assemble(drafts), log.report()


def _sessions(file: Path, log: ImportLog) -> list[DraftExecution]:
    drafts: list[DraftExecution] = []
    open_at: dict[int, _Session] = {}  # by the hash of the last full block of the session's latest input
    for number, record in json_lines(file, log):
        try:
            arrival_s = seconds(record["timestamp"]) / 1e3
            call = DraftCall(0, count(record["input_length"]), count(record["output_length"]))
            hashes = [count(value) for value in record["hash_ids"]]
        except (KeyError, TypeError, ValueError) as error:
            log.skip(file.name, "bad_request", "a request lacks a usable field", row=number, example=f"{error!r}")
            continue
        session = _continued(hashes, call.input_tokens, open_at)
        if session is None:
            session = _Session(_draft(file, number), arrival_s, [])
            drafts.append(session.draft)
            call.start_s = 0.0
        else:
            _append(call, arrival_s, session)
            del open_at[session.hashes[-1]]
        session.draft.calls.append(call)
        session.arrival_s = arrival_s
        session.hashes = hashes[: call.input_tokens // BLOCK_TOKENS]
        if len(session.hashes) > 1:
            open_at[session.hashes[-1]] = session
    return drafts


def _continued(hashes: list[int], input_tokens: int, open_at: dict[int, _Session]) -> _Session | None:
    for end in range(len(hashes) - 1, 0, -1):
        session = open_at.get(hashes[end])
        if session is None or session.hashes != hashes[: end + 1]:
            continue
        if input_tokens >= session.draft.calls[-1].input_tokens:
            return session
    return None


def _append(call: DraftCall, arrival_s: float, session: _Session) -> None:
    parent = session.draft.calls[-1]
    gap_s = max(0.0, arrival_s - session.arrival_s)
    call.parent, call.relation = parent, Relation.APPEND
    call.prefix_tokens = len(session.hashes) * BLOCK_TOKENS
    call.start_s, call.wait_s, call.wait_kind = (parent.start_s or 0.0) + gap_s, gap_s, WaitKind.HUMAN


def _draft(file: Path, number: int) -> DraftExecution:
    fields: dict[str, Any] = {"human_in_loop": True, "time_quality": Quality.INFERRED}
    return DraftExecution(execution_id=f"{file.stem}:{number}", source="mooncake", **fields)
