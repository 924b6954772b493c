"""Reads reward, outcome and group from the `metrics.json` that a benchmark leaves beside a transcript."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from ...outcome import Outcome
from .drafts import DraftExecution
from .fields import mapping, number_or_none, text
from .files import json_object
from .log import ImportLog

_REWARDS: Final = ("reward", "score", "verification_pct")  # the first that is a number
_TASKS: Final = ("task", "kata")
_GROUP_PARTS: Final = ("workflow", "model")  # runs of one task are a group only if these are equal too


def apply_metrics(draft: DraftExecution, path: Path, log: ImportLog) -> None:
    """Set what the file says; without one, the session is a group of its own, completed and unscored."""
    if not path.is_file():
        return
    metrics = json_object(path)
    if not metrics:
        log.skip(path.name, "bad_metrics", "no JSON object; reward, outcome and group stay unknown", example=str(path))
        return
    draft.reward = next((value for name in _REWARDS if (value := number_or_none(metrics.get(name))) is not None), None)
    draft.wall_s = number_or_none(metrics.get("duration_seconds")) or draft.wall_s
    draft.task = next((name for field in _TASKS if (name := text(metrics.get(field)))), None)
    if draft.task is not None:
        draft.group_id = "|".join([draft.task, *(name for field in _GROUP_PARTS if (name := text(metrics.get(field))))])
    draft.outcome = _outcome(metrics)
    draft.censored = draft.outcome is Outcome.HARNESS_TIMEOUT


def _outcome(metrics: dict[str, Any]) -> Outcome:
    reason = text(mapping(metrics.get("run_status")).get("exit_reason")) or "ok"
    if reason in ("ok", "completed"):
        return Outcome.COMPLETED
    return Outcome.HARNESS_TIMEOUT if "timeout" in reason else Outcome.AGENT_ERROR
