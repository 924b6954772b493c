"""Workloads: recorded or generated traces of agent executions, and their compiled form."""

from __future__ import annotations

from .findings import Finding, Kind, Report
from .program import Program
from .trace import Trace
from .validate import repair, validate

__all__ = ["Finding", "Kind", "Program", "Report", "Trace", "repair", "validate"]
