"""Changes copies of a store, in copy n until just before the n-th step on disk; run as a program.

A child process does each, so that SIGKILL ends it there. It is a program of its own to fork before Polars has threads.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from stored_executions import item

from gyre.trajectory.store import TrajectoryStore

NEW_B, D = item("b", seed=1), item("d")


def change(folder: Path) -> None:
    """Three changes of a store that holds a, b and c."""
    store = TrajectoryStore.open(folder)
    store.append([NEW_B, D], replace=True)
    store.set_scores({"a": 0.125})
    store.compact()


def replace(folder: Path) -> None:
    """Put d in the place of all."""
    TrajectoryStore.replace(folder, [D])


def kill_at(step: int, folder: Path) -> None:
    """Let this process kill itself just before its `step`-th opening for writing, renaming or removal in `folder`."""
    seen = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        if event not in {"open", "os.rename", "os.remove"} or not str(arguments[0]).startswith(str(folder)):
            return
        if event == "open" and not arguments[2] & (os.O_WRONLY | os.O_RDWR):
            return
        seen += 1
        if seen == step:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def main() -> None:
    """Change or replace each copy; print how many writers were killed before the first that was not."""
    write = {"change": change, "replace": replace}[sys.argv[1]]
    for step, folder in enumerate(map(Path, sys.argv[2:]), start=1):
        child = os.fork()
        if child == 0:
            kill_at(step, folder)
            write(folder)
            os._exit(0)
        if os.waitpid(child, 0)[1] == 0:
            print(step - 1)
            return


if __name__ == "__main__":
    main()
