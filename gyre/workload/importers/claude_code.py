"""Reads Claude Code's transcripts: JSON lines, one session a file, sub-agents in files of their own.

- Several lines with one `message.id` are one call; its usage is the one with the most output tokens. Its input is
  `input_tokens` + `cache_creation_input_tokens` + `cache_read_input_tokens`.
- A call starts when the latest line before it that is not the assistant's was written and ends with its last line.
- A sub-agent is a thread: a file in `NAME-subagents/`, in `NAME/subagents/`, or `agent-*.jsonl` of the same session
  beside the transcript; in old versions lines marked `isSidechain` in the transcript itself.
- Transcripts hold no text that could be compared: relations are inferred from token counts (see `claude_code_calls`).
- `metrics.json` beside the transcript gives reward, outcome and group (see `claude_code_metrics`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from ..findings import Report
from ..schema import Quality
from ..trace import Trace
from .assemble import assemble
from .claude_code_calls import ThreadReader
from .claude_code_metrics import apply_metrics
from .drafts import DraftExecution
from .fields import text
from .files import files_below, head_objects, json_lines, json_object
from .log import ImportLog
from .partial_output import flag_partial_output
from .usable import with_calls

_TYPES: Final = {"assistant", "user", "system", "summary", "queue-operation", "attachment", "file-history-snapshot"}


def detect(path: Path) -> bool:
    """A `.jsonl` file whose first lines are typed records of a session, or a folder with one."""
    return any(_is_transcript(file) for file in _transcripts(path)[:3])


def read(path: Path) -> tuple[Trace, Report]:
    """Read one transcript with its sub-agents, or every transcript below a folder.

    Raises:
        InputError: no transcript with a usable call is there.
    """
    log = ImportLog()
    drafts = with_calls(
        ((file, _session(file, log)) for file in _transcripts(path)),
        log,
        source=path,
        what="Claude Code transcript with a model call",
        rule="no_calls",
        says="the transcript holds no assistant message with usage",
    )
    _distinct(drafts)
    return assemble(drafts), log.report()


def _is_transcript(file: Path) -> bool:
    return any(text(found.get("type")) in _TYPES and "sessionId" in found for found in head_objects(file))


def _transcripts(path: Path) -> list[Path]:
    """Main transcripts: not a sub-agent's file, unless it is all that was named."""
    files = files_below(path, ".jsonl")
    return [file for file in files if file == path or not _is_sub_agent_file(file)]


def _is_sub_agent_file(file: Path) -> bool:
    return file.name.startswith("agent-") or file.parent.name.endswith("subagents")


def _sub_agent_files(file: Path, session_id: str | None) -> list[Path]:
    folders = (file.with_name(f"{file.stem}-subagents"), file.with_suffix("") / "subagents")
    files = [found for folder in folders for found in sorted(folder.glob("*.jsonl"))]
    beside = [found for found in sorted(file.parent.glob("agent-*.jsonl")) if found != file]
    return files + [found for found in beside if _session_of(found) == session_id]


def _session_of(file: Path) -> str | None:
    return next((name for head in head_objects(file) if (name := text(head.get("sessionId")))), None)


def _session(file: Path, log: ImportLog) -> DraftExecution:
    draft = DraftExecution(
        execution_id=file.stem, source="claude-code", harness="claude-code", prefix_quality=Quality.INFERRED
    )
    main = ThreadReader(0, None, "main", file.name, log)
    side: dict[str, ThreadReader] = {}
    chain_of: dict[str, str] = {}
    session_id: str | None = None
    for number, record in json_lines(file, log):
        session_id = session_id or text(record.get("sessionId"))
        reader = main
        if record.get("isSidechain"):
            reader = _side_reader(record, side, chain_of, file, log)
        reader.add(number, record)
    readers = [main, *side.values()]
    for found in _sub_agent_files(file, session_id):
        reader = ThreadReader(len(readers), 0, _agent_kind(found), found.name, log)
        for number, record in json_lines(found, log):
            reader.add(number, record)
        readers.append(reader)
    _fill(draft, readers, session_id, log)
    apply_metrics(draft, file.with_name("metrics.json"), log)
    return draft


def _side_reader(
    record: dict[str, Any], side: dict[str, ThreadReader], chain_of: dict[str, str], file: Path, log: ImportLog
) -> ThreadReader:
    """The thread of a side line: its `agentId`, or else the chain of `parentUuid` that it continues."""
    uuid, parent = str(record.get("uuid")), str(record.get("parentUuid"))
    chain = str(record.get("agentId") or chain_of.get(parent) or uuid)
    chain_of[uuid] = chain
    if chain not in side:
        side[chain] = ThreadReader(len(side) + 1, 0, "sub-agent", file.name, log)
    return side[chain]


def _agent_kind(file: Path) -> str:
    meta = file.with_suffix(".meta.json")
    return text(json_object(meta).get("agentType")) or "sub-agent"


def _fill(draft: DraftExecution, readers: list[ThreadReader], session_id: str | None, log: ImportLog) -> None:
    """Put all threads' calls and tools into the draft, with times from the execution's first call."""
    draft.execution_id = session_id or draft.execution_id
    for reader in readers:
        reader.finish()
        draft.calls += reader.calls
        draft.tools += reader.tools
        draft.human_in_loop |= reader.people
        if reader.estimated:
            draft.token_quality = Quality.INFERRED
    draft.count_time_from_first_call()
    draft.model = next((call.model for call in draft.calls if call.model), None)
    flag_partial_output(draft, log)


def _distinct(drafts: list[DraftExecution]) -> None:
    """A session that was copied or resumed keeps its id with a number behind it."""
    seen: dict[str, int] = {}
    for draft in drafts:
        seen[draft.execution_id] = count = seen.get(draft.execution_id, 0) + 1
        if count > 1:
            draft.execution_id = f"{draft.execution_id}#{count}"
