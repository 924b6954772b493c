"""Puts and releases groups until it is killed, over and over; run as a program: FOLDER KILLS SEED.

A child does it, and says what is done on a pipe, a line each; its parent kills it after a few milliseconds. It is a
program of its own to fork before libraries have threads. It prints the folder and the lines of each child.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.with_name("trajectory")))

from stored_executions import Item, item

from gyre.buffer.storage import GroupStorage

GROUPS, MEMBERS = 30, 3


@cache
def member(group: int, number: int) -> Item:
    """An execution that is the same in every process."""
    return item(f"{group}-{number}", str(group), calls=4 if number else 60)


def work(folder: Path, report: int) -> None:
    """Put the members of groups one by one, and release a group once two more are there."""
    storage = GroupStorage(folder, 50_000)
    for group in range(GROUPS):
        for number in range(MEMBERS):
            storage.put(group, [member(group, number)])
            os.write(report, f"put {group} {number}\n".encode())
        if group >= 2:
            os.write(report, f"releasing {group - 2}\n".encode())
            storage.release(group - 2)
            os.write(report, f"released {group - 2}\n".encode())


def main() -> None:
    """Kill a child in a folder of its own, so many times."""
    root, kills, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    generator = random.Random(seed)
    for group in range(GROUPS):  # once, for all children
        for number in range(MEMBERS):
            member(group, number)
    work_all_s = timed(root / "whole")
    for number in range(kills):
        folder = root / str(number)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            work(folder, writer)
            os._exit(0)
        os.close(writer)
        time.sleep(generator.random() * work_all_s)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        with os.fdopen(reader) as lines:
            print(json.dumps([str(folder), lines.read().splitlines()]))


def timed(folder: Path) -> float:
    """Seconds that a child works if it is not killed."""
    start = time.perf_counter()
    child = os.fork()
    if child == 0:
        work(folder, os.open(os.devnull, os.O_WRONLY))
        os._exit(0)
    os.waitpid(child, 0)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
