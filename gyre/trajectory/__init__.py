"""Trajectories: from recorded model calls to training samples.

What others need is named here; each name is imported when it is first used, so that importing this package costs
nothing. `docs/trajectories.md` is the guide.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ..role import Role
    from .advantages import Baseline
    from .building import TreeBuilder, build_tree
    from .call import CallRecord, Finish, Media
    from .call_log import CallLog, CallLogWriter
    from .exchange import export, load
    from .execution import ExecutionRecord
    from .inspection import TreeView, inspection_page
    from .making import SampleBuilder, make_samples
    from .packing import pack_rows, pack_trees
    from .recorded_calls import RecordedCalls
    from .samples import Samples
    from .selection import Selection, select
    from .store import TrajectoryStore
    from .tree import Tree

__all__ = [
    "Baseline",
    "CallLog",
    "CallLogWriter",
    "CallRecord",
    "ExecutionRecord",
    "Finish",
    "Media",
    "RecordedCalls",
    "Role",
    "SampleBuilder",
    "Samples",
    "Selection",
    "TrajectoryStore",
    "Tree",
    "TreeBuilder",
    "TreeView",
    "build_tree",
    "export",
    "inspection_page",
    "load",
    "make_samples",
    "pack_rows",
    "pack_trees",
    "select",
]
_HOMES: Final = {
    "Baseline": ".advantages",
    "CallLog": ".call_log",
    "CallLogWriter": ".call_log",
    "CallRecord": ".call",
    "ExecutionRecord": ".execution",
    "Finish": ".call",
    "Media": ".call",
    "RecordedCalls": ".recorded_calls",
    "Role": "..role",
    "SampleBuilder": ".making",
    "Samples": ".samples",
    "Selection": ".selection",
    "TrajectoryStore": ".store",
    "Tree": ".tree",
    "TreeBuilder": ".building",
    "TreeView": ".inspection",
    "build_tree": ".building",
    "export": ".exchange",
    "inspection_page": ".inspection",
    "load": ".exchange",
    "make_samples": ".making",
    "pack_rows": ".packing",
    "pack_trees": ".packing",
    "select": ".selection",
}


def __getattr__(name: str) -> Any:
    """Import the module that has `name`, and keep what it names."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(_HOMES[name], __name__), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """Return what can be imported from here."""
    return sorted(__all__)
