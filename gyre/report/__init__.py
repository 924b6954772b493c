"""What people look at: tables, summaries, comparisons, the HTML report and the timeline, from a run's journal alone."""

from __future__ import annotations

from .comparison import Comparison, PolicyFigures, RunResult, compare_runs
from .folder import ResultsFolder
from .interval import Interval, ratio_interval
from .record import RunRecord, RunRecorder, record_run
from .results import Results, finished_run, open_results, read_run
from .summary import Bound, Summary, summarize
from .table import comparison_table

__all__ = [
    "Bound",
    "Comparison",
    "Interval",
    "PolicyFigures",
    "Results",
    "ResultsFolder",
    "RunRecord",
    "RunRecorder",
    "RunResult",
    "Summary",
    "compare_runs",
    "comparison_table",
    "finished_run",
    "open_results",
    "ratio_interval",
    "read_run",
    "record_run",
    "summarize",
]
