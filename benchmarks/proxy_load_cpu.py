"""CPU time of another process."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def cpu_s(pid: int) -> float:
    """CPU-seconds of a process and all its descendants, to the nanosecond (Linux)."""
    return _sum_s(pid, 0)


def waited_s(pid: int) -> float:
    """Seconds that it could have run, but other processes had the cores: how noisy the machine is."""
    return _sum_s(pid, 1)


def _sum_s(pid: int, field: int) -> float:
    total = 0
    for one in (pid, *_descendants(pid)):
        with suppress(OSError):
            for task in Path(f"/proc/{one}/task").iterdir():
                total += int((task / "schedstat").read_text().split()[field])
    return total / 1e9


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                found += [child, *_descendants(child)]
    return found
