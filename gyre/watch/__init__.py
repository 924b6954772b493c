"""How healthy a run is: figures of each step from the journal alone, alerts, metrics by name."""

from __future__ import annotations

from .alert import Alert, Severity, alerts_jsonl
from .figures import Flow, StepFigures
from .metrics import gauges, metrics_jsonl, step_metrics
from .settings import AlertName, WatchSettings, read_watch_settings, watch_settings
from .watcher import RunHealth, Watcher, health_of

__all__ = [
    "Alert",
    "AlertName",
    "Flow",
    "RunHealth",
    "Severity",
    "StepFigures",
    "WatchSettings",
    "Watcher",
    "alerts_jsonl",
    "gauges",
    "health_of",
    "metrics_jsonl",
    "read_watch_settings",
    "step_metrics",
    "watch_settings",
]
