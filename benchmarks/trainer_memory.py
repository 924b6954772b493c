"""What it costs a trainer to give its memory away and to take it again: `trainer_memory.py MODEL`.

On a GPU it says how many bytes are free afterwards and how long both ways took; on a CPU both must cost nothing. In
either case the weights must be the same, bit for bit, and so must be an update after it.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from gyre.backends.training.cell import TrainingCell
from gyre.backends.training.cell_recipe import CellRecipe
from gyre.backends.training.open_cell import open_cell

ROUNDS = 5


def used_bytes() -> int:
    """GPU memory that is not free; 0 on a CPU. Waits for the GPU."""
    if not torch.cuda.is_available():
        return 0
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return total - free


def seconds_of(work: Callable[[], object]) -> float:
    """Seconds of a call, the GPU's work included."""
    used_bytes()
    begin_s = time.perf_counter()
    work()
    used_bytes()
    return time.perf_counter() - begin_s


def measured(cell: TrainingCell) -> None:
    """Print what was found."""
    gradient = np.random.default_rng(0).standard_normal(cell.size, np.float32)
    cell.update(gradient.copy(), 1)  # makes the moments
    kept, awake_bytes = cell.values(), used_bytes()
    asleep_bytes, released, taken = 0, [], []
    for _ in range(ROUNDS):
        released.append(seconds_of(cell.release))
        asleep_bytes = used_bytes()
        taken.append(seconds_of(cell.values))
    again = seconds_of(cell.values)  # nothing to take: the copy alone
    assert np.array_equal(cell.values(), kept), "the weights have changed"
    print(f"{cell.size:,} weights; {awake_bytes:,} bytes used while it trains, {asleep_bytes:,} while it does not")
    print(f"give away {statistics.median(released):.6f} s, take again {statistics.median(taken) - again:.6f} s")


def main() -> None:
    """Measure one rank of the model."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        print("there is no GPU: what is measured is that nothing happens")
    with open_cell(CellRecipe(folder=Path(sys.argv[1]), device=device)) as cell:
        measured(cell)


if __name__ == "__main__":
    main()
