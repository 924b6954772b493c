"""A step of many executions, a group in memory at a time: from calls to a store, and from it to micro-steps."""

from .ingestion import BuildReport, CallSource, build_store, rebuild_store
from .step import Packing, StepTotals, packed_micro_steps, step_samples, step_totals

__all__ = [
    "BuildReport",
    "CallSource",
    "Packing",
    "StepTotals",
    "build_store",
    "packed_micro_steps",
    "rebuild_store",
    "step_samples",
    "step_totals",
]
