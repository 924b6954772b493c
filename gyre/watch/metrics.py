"""Figures by name, for metrics files, dashboards and gauges."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Final

from ..outcome import Outcome
from .alert import Alert
from .figures import COMPLETION, SCORE, TOKENS, TOOL_CALLS, VALID, Means, StepFigures, check_of
from .watcher import RunHealth

Values = dict[str, float]
_NAMES: Final = {COMPLETION: "completion_rate", SCORE: "score", TOOL_CALLS: "tool_calls", TOKENS: "tokens"}


def step_metrics(step: StepFigures, alerts: Sequence[Alert] = ()) -> Values:
    """Return a step's figures; what there is no data for is left out. docs/watch.md says what each name means.

    `rollout/` is of the groups that the step trained, `ended/` of what ended since the step before.
    """
    flow, scores = step.flow, step.scores
    values: dict[str, float | None] = {
        "rollout/groups": step.groups,
        "rollout/executions": step.executions,
        **_means("rollout", step.means),
        **{f"rollout/outcome/{outcome}": count for outcome, count in step.outcomes.items()},
        **{f"train/{name}": value for name, value in step.metrics.items()},
        "train/zero_variance_share": step.zero_variance_share,
        "train/zero_variance_all_zero": scores.zero,
        "train/zero_variance_all_one": scores.one,
        "off_policy/staleness_mean": step.staleness_mean,
        "off_policy/staleness_max": step.staleness_max,
        "off_policy/token_staleness_mean": step.token_staleness_mean,
        "off_policy/token_staleness_max": step.token_staleness_max,
        "switch/count": flow.switches,
        "switch/seconds": flow.switch_s,
        **_means("ended", flow.means),
        "health/dispatched": flow.dispatched,
        "health/ended": flow.outcomes.total(),
        "health/overall_timeouts": flow.outcomes[Outcome.OVERALL_TIMEOUT],
        "health/lost": flow.lost.total(),
        "health/cancelled": flow.cancelled.total(),
        "health/added": flow.added,
        "health/groups_dropped": flow.dropped.total(),
        "health/evaluations_failed": flow.failed.total(),
        "health/evaluations_late": flow.late,
        "health/alerts": sum(alert.step <= step.step and _on(alert, step.step) for alert in alerts),
    }
    return {name: float(value) for name, value in values.items() if value is not None and math.isfinite(value)}


def _on(alert: Alert, step: int) -> bool:
    return alert.ended_step is None or alert.ended_step > step


def _means(prefix: str, means: Means) -> dict[str, float | None]:
    values: dict[str, float | None] = {}
    for key, mean in means.items():
        check = check_of(key)
        if key == VALID:
            values[f"{prefix}/invalid_share"] = None if mean.mean is None else 1.0 - mean.mean
        elif check is not None:
            values[f"{prefix}/check/{check}"] = mean.mean
        else:
            values[f"{prefix}/{_NAMES[key]}"] = mean.mean
            values[f"{prefix}/{_NAMES[key]}_error"] = mean.error
    return values


def metrics_jsonl(health: RunHealth) -> str:
    """Return one JSON line a step: `step`, `time_s` (seconds since the run began) and its metrics."""
    lines: Iterable[dict[str, float]] = (
        {"step": step.step, "time_s": step.time_s, **step_metrics(step, health.alerts)} for step in health.steps
    )
    return "".join(json.dumps(line, separators=(",", ":"), allow_nan=False) + "\n" for line in lines)


def gauges(health: RunHealth) -> Values:
    """Return how the run stands now: the last step's metrics, executions open, updates made, alerts by name."""
    values = step_metrics(health.steps[-1], health.alerts) if health.steps else {}
    values |= {"updates": float(len(health.steps)), "health/open_executions": float(health.open_executions)}
    for alert in health.alerts:
        if alert.active:
            name = f"alert/{alert.name}"
            values[name] = values.get(name, 0.0) + 1.0
    return values
