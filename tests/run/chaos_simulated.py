"""Simulated runs that are ended at any point, and made whole by --resume.

Run as a program; it is one of its own to fork before libraries have threads.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Final

from gyre.cli import main as gyre
from gyre.cli.tasks import Task, run_task
from gyre.config import RunSettings
from gyre.report.folder import JOURNAL, SUMMARY, TABLES

LATER: Final = (*(f"{name}.parquet" for name in TABLES), SUMMARY)  # in the order in which they are written
COMPARED: Final = (JOURNAL, SUMMARY)
_SIZES: Final = {"steps": 6, "groups_per_step": 4, "group_size": 4}
_CELLS: Final = {"cells": 3, "capacity": 8}
_HARDWARE: Final = "qwen3-8b-tp1"


def lengths_file(path: Path) -> Path:
    """A workload: 24 groups of four rollout lengths."""
    rows = [f"g{group},{60 + (37 * group + 101 * member) % 400}" for group in range(24) for member in range(4)]
    path.write_text("group,duration_s\n" + "\n".join(rows) + "\n")
    return path


def settings_of(workload: Path) -> RunSettings:
    """A run of a thousand journal entries."""
    return RunSettings.model_validate(
        {
            "policy": "elastic",
            "workload": {"trace": str(workload)},
            "cluster": {"hardware": _HARDWARE, **_CELLS},
            "training": _SIZES,
        }
    )


def arguments_of(workload: Path) -> list[str]:
    """The same run as arguments of `gyre simulate`."""
    chosen = {f"training.{name}": value for name, value in _SIZES.items()}
    chosen |= {f"cluster.{name}": value for name, value in _CELLS.items()}
    given = [part for name, value in chosen.items() for part in ("--set", f"{name}={value}")]
    return ["simulate", "--trace", str(workload), "--hardware", _HARDWARE, *given, "--json"]


def make(settings: RunSettings, folder: Path) -> None:
    """Make the run in a folder, or make it whole."""
    run_task(Task("elastic", settings, folder), lambda step: None, lambda: False)


def end_anywhere(whole: Path, folder: Path, draw: random.Random) -> None:
    """Leave in `folder` what a killed process would have left of the run in `whole`.

    Either a beginning of the journal, cut at any byte, or all of it and some of the files that are written after it.
    """
    folder.mkdir()
    shutil.copy(whole / "settings.toml", folder)
    if draw.random() < 0.85:
        content = (whole / JOURNAL).read_bytes()
        (folder / JOURNAL).write_bytes(content[: draw.randint(0, len(content))])
        return
    for name in (JOURNAL, *LATER[: draw.randrange(len(LATER) + 1)]):
        shutil.copy(whole / name, folder)


def differing(whole: Path, folder: Path) -> list[str]:
    """Names of files that are not the same, byte by byte."""
    return [name for name in COMPARED if (whole / name).read_bytes() != (folder / name).read_bytes()]


def command_life(arguments: list[str], folder: Path, kill_after_s: float | None = None) -> bool:
    """Run `gyre simulate --resume` in a child and kill it after a while; return whether it had not ended by then."""
    child = os.fork()
    if child == 0:
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            sys.argv = ["gyre", *arguments, "--out", str(folder), "--resume"]
            gyre(sys.argv[1:], standalone_mode=False)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(70)
    if kill_after_s is not None:
        time.sleep(kill_after_s)
        os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL), code
    return code != 0


def kill_command(folder: Path, kills: int, draw: random.Random) -> tuple[int, list[str]]:
    """Kill `gyre simulate` at random moments; return how often, and what differed after --resume."""
    arguments, whole = arguments_of(lengths_file(folder / "lengths.csv")), folder / "killed-whole"
    begun = time.monotonic()
    command_life(arguments, whole)
    seconds, killed, wrong = time.monotonic() - begun, 0, []
    for number in range(10 * kills):
        if killed >= kills:
            break
        run = folder / f"killed{number}"
        for _ in range(draw.randint(1, 2)):
            killed += command_life(arguments, run, draw.uniform(0.0, seconds))
        command_life(arguments, run)
        wrong += [f"{run.name}: {name}" for name in differing(whole, run)]
        shutil.rmtree(run)
    return killed, wrong


def cut_folders(folder: Path, ends: int, draw: random.Random) -> list[str]:
    """Make whole what was ended at random points; return what differed."""
    settings, whole = settings_of(lengths_file(folder / "lengths.csv")), folder / "whole"
    make(settings, whole)
    wrong = []
    for number in range(ends):
        run = folder / f"cut{number}"
        end_anywhere(whole, run, draw)
        make(settings, run)
        wrong += [f"{run.name}: {name}" for name in differing(whole, run)]
        shutil.rmtree(run)
    return wrong


def main() -> None:
    """End runs as often as asked; print as JSON how often that was, and which files then differed."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cuts", type=int, default=20, help="ends at a byte of a file")
    parser.add_argument("--kills", type=int, default=2, help="kills of the command")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(given.seed)
    killed, wrong = kill_command(given.folder, given.kills, draw) if given.kills else (0, [])
    wrong += cut_folders(given.folder, given.cuts, draw)
    print(json.dumps({"cuts": given.cuts, "killed": killed, "differ": wrong}))


if __name__ == "__main__":
    main()
