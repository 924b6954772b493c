"""Micro-steps for the trainer: rows side by side, or shared prefixes once."""

from __future__ import annotations

from .budget import Oversize
from .micro_step import MicroStep, RowMicroStep, TreeMicroStep
from .row_packing import RowPacking, pack_rows
from .savings import Load, Savings, calls_load, savings
from .tree_packing import TreePacking, pack_trees

__all__ = [
    "Load",
    "MicroStep",
    "Oversize",
    "RowMicroStep",
    "RowPacking",
    "Savings",
    "TreeMicroStep",
    "TreePacking",
    "calls_load",
    "pack_rows",
    "pack_trees",
    "savings",
]
