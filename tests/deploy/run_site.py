"""A folder with all that a small run needs: a tiny model, tasks, a judge, a harness, settings."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import tomli_w

from gyre.backends.models.tiny import make_tiny_model

_TESTS = Path(__file__).parents[1]
HARNESS = _TESTS / "run" / "loop_harness.py"
SCRIPTED = Path(__file__).parent / "scripted_sglang"
# Half of the executions of a group are right, so that each group teaches something.
JUDGE = (
    "import json, os, pathlib; subject = json.loads(pathlib.Path(os.environ['GYRE_SUBJECT']).read_text());"
    "raise SystemExit(int(subject['execution'].partition('-')[0]) % 2)"
)
TASKS = [{"name": name, "prompt": f"Write {name}.", "data": {"expected": name}} for name in ("one", "two", "three")]


def settings_of(**tables: Any) -> dict[str, Any]:
    """Settings of a small run on CPU; `tables` replace those of their names."""
    return {
        "policy": "elastic",
        "policy_settings": {"phi": 1.0, "mu": 1},
        "training": {"steps": 3, "groups_per_step": 2, "group_size": 2, "micro_step_tokens": 4096},
        "limits": {"harness_timeout_s": 60.0},
        "model": {"folder": "model"},
        "cells": {"count": 2, "capacity": 4, "device": "cpu"},
        "engine": {"checks": {"every_s": 1.0, "retry_s": 0.2}},
        "trainer": {"optimizer": {"learning_rate": 1e-3}},
        "sampling": {"max_new_tokens": 24},
        "harness": {"name": "loop", "command": [sys.executable, "-I", "-S", str(HARNESS), "{prompt_file}"]},
        "tasks": {"file": "tasks.jsonl"},
        "evaluator": {"kind": "command", "command": [sys.executable, "-I", "-S", "-c", JUDGE], "jobs": 2},
        **tables,
    }


@dataclass(frozen=True)
class Site:
    """A folder with a settings file."""

    folder: Path

    @classmethod
    def make(cls, folder: Path, **tables: Any) -> Site:
        """Make it, with a model."""
        folder.mkdir(exist_ok=True)
        make_tiny_model(folder / "model")
        (folder / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in TASKS))
        (folder / "settings.toml").write_text(tomli_w.dumps(settings_of(**tables)))
        return cls(folder)

    @property
    def settings(self) -> Path:
        """The settings file."""
        return self.folder / "settings.toml"

    @property
    def out(self) -> Path:
        """The run's folder."""
        return self.folder / "out"

    def arguments(self, *more: str) -> list[str]:
        """Arguments of `gyre` for the run."""
        return ["run", str(self.settings), "--out", str(self.out), *more]

    def start(self, *more: str, scripted: bool) -> RunProcess:
        """Start the run in a process of its own, whose engines are scripted or real."""
        path = os.pathsep.join([*([str(SCRIPTED)] if scripted else []), *filter(None, [os.environ.get("PYTHONPATH")])])
        said = (self.folder / "said.txt").open("a+")
        process = subprocess.Popen(
            [sys.executable, "-c", "from gyre.cli import main; main()", *self.arguments(*more)],
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
            stdout=said,
            stderr=subprocess.STDOUT,
            cwd=self.folder,
            start_new_session=True,
        )
        return RunProcess(process, said, said.tell())


@dataclass
class RunProcess:
    """A run that was started."""

    process: subprocess.Popen[bytes]
    _said: IO[str]
    _from: int

    @property
    def said(self) -> str:
        """What it printed so far."""
        self._said.seek(self._from)
        return self._said.read()

    def interrupt(self) -> None:
        """Do what Ctrl-C does on a terminal: its children hear it too."""
        os.killpg(self.process.pid, signal.SIGINT)

    def wait_for(self, text: str) -> None:
        """Return once it has printed a text."""
        while text not in self.said:
            if self.process.poll() is not None:
                raise AssertionError(f"it ended with {self.process.returncode} and had said:\n{self.said}")
            try:
                self.process.wait(0.1)
            except subprocess.TimeoutExpired:
                continue

    def __enter__(self) -> RunProcess:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._said.close()
