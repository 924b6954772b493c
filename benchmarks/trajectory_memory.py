"""How much more memory a process holds while it builds the tree of an execution; for `trajectory_speed.py`.

python benchmarks/trajectory_memory.py 1x
"""

from __future__ import annotations

import ctypes
import gc
import json
import sys
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
from trajectory_workload import PRESETS, generate

from gyre.trajectory.building import build_tree
from gyre.trajectory.tree import Tree


@dataclass(frozen=True)
class Memory:
    """Bytes of one execution's tree."""

    workload: str
    unique_tokens: int
    peak_bytes: int  # largest resident set while it is built, over that before
    tree_bytes: int  # its arrays


def status(field: str) -> int:
    """Return a line of /proc/self/status in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(field + ":"))


def array_bytes(tree: Tree) -> int:
    """Return what the tree's arrays take, those of its calls included."""
    held = [getattr(part, field.name) for part in (tree, tree.calls) for field in fields(part)]
    return sum(value.nbytes for value in held if isinstance(value, np.ndarray))


def measured(name: str) -> Memory:
    """Build a small tree, which compiles; then the execution's, and see how far the process grows."""
    build_tree(generate(PRESETS["1x"], seed=1).records[:60])
    records = generate(PRESETS[name]).records
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # so that what was freed before does not count as there already
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the largest resident set starts anew
    before = status("VmRSS")
    tree = build_tree(records)
    return Memory(name, tree.unique_tokens, status("VmHWM") - before, array_bytes(tree))


if __name__ == "__main__":
    json.dump(asdict(measured(sys.argv[1])), sys.stdout)
