"""The append-only log of model calls: written while executions run, readable at any moment."""

from __future__ import annotations

from .jsonl import read_calls_jsonl
from .logs import CallLogs, open_logs
from .problem import Problem
from .reader import CallLog
from .writer import CallLogWriter

__all__ = ["CallLog", "CallLogWriter", "CallLogs", "Problem", "open_logs", "read_calls_jsonl"]
