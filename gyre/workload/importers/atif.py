"""Reads ATIF, the Agent Trajectory Interchange Format of Harbor (versions 1.0 to 1.7): one JSON document a trajectory.

- A step of `source` agent with `metrics.prompt_tokens` and `completion_tokens` is a call; `prompt_tokens` counts cached
  tokens too. A step copied from another trajectory (`is_copied_context`) is none.
- Sub-agents are threads: trajectories embedded in `subagent_trajectories`, or files that `trajectory_path` names below
  the trajectory's folder. A step whose observation refers to one spawns it.
- `timestamp` is taken as the time at which a step ended; its call starts where the step before ended. The time between
  two steps is then the model's and no wait for tools is known, unless `extra.llm_duration_s` or
  `metrics.extra.duration_s` says how much of it was the model's: the rest before it is a wait.
- Relations are inferred from token counts (see `relate`); a shorter input after a system step is a compaction.
- `extra.reward`, else `final_metrics.extra.reward`, is the reward; `extra.task` or `extra.task_name` the group.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from ..findings import Report
from ..schema import Quality
from ..trace import Trace
from .assemble import assemble
from .atif_steps import sub_agent_refs
from .atif_threads import add_threads, referred_file
from .drafts import DraftExecution
from .fields import mapping, number_or_none, objects, text
from .files import files_below, json_object, read_json
from .log import ImportLog
from .usable import with_calls

VERSION_PREFIX: Final = "ATIF-v1."


def detect(path: Path) -> bool:
    """A JSON file whose `schema_version` is ATIF's, or a folder with one."""
    return any(_is_atif(json_object(file)) for file in files_below(path, ".json")[:20])


def read(path: Path) -> tuple[Trace, Report]:
    """Read one trajectory with its sub-agents, or every one below a folder.

    Raises:
        InputError: no trajectory with a usable call is there.
    """
    log = ImportLog()
    read_one = json_object if path.is_dir() else read_json
    documents = {file: read_one(file) for file in files_below(path, ".json")}
    found = {file: document for file, document in documents.items() if _is_atif(document)}
    referred = {target for file, document in found.items() for target in _referred_files(document, file)}
    drafts = with_calls(
        ((file, _execution(found[file], file, log)) for file in found if file.resolve() not in referred),
        log,
        source=path,
        what="ATIF trajectory with a model call",
        rule="no_calls",
        says="no agent step has `prompt_tokens` and `completion_tokens`",
    )
    return assemble(drafts), log.report()


def _is_atif(document: Any) -> bool:
    return isinstance(document, dict) and str(document.get("schema_version", "")).startswith(VERSION_PREFIX)


def _referred_files(document: dict[str, Any], file: Path) -> list[Path]:
    refs = [ref for step in objects(document.get("steps")) for ref in sub_agent_refs(step)]
    return [target for ref in refs if (target := referred_file(ref, file)) is not None]


def _execution(document: dict[str, Any], file: Path, log: ImportLog) -> DraftExecution:
    agent = mapping(document.get("agent"))
    draft = DraftExecution(
        execution_id=text(document.get("trajectory_id")) or text(document.get("session_id")) or file.stem,
        source="atif",
        harness=text(agent.get("name")),
        model=text(agent.get("model_name")),
        prefix_quality=Quality.INFERRED,
    )
    add_threads(draft, document, file, log)
    _set_extras(draft, document)
    draft.count_time_from_first_call()
    timed = any(call.start_s is not None for call in draft.calls)
    draft.time_quality = Quality.INFERRED if timed else Quality.ABSENT
    return draft


def _set_extras(draft: DraftExecution, document: dict[str, Any]) -> None:
    for holder in (document, mapping(document.get("final_metrics"))):
        extra = mapping(holder.get("extra"))
        draft.reward = number_or_none(extra.get("reward")) if draft.reward is None else draft.reward
        draft.task = draft.task or text(extra.get("task")) or text(extra.get("task_name"))
    draft.group_id = draft.task
