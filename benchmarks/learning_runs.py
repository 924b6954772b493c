"""The runs of `learning.py`: each is one of the examples, started as a user would."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from learning_kills import Killer

from gyre.report import read_run

JOIN: Final = (
    "--set",
    "policy_settings.join_backlog=0.01",
)  # of elastic: a step trains for a second, and a move is short
EXAMPLES: Final = Path(__file__).resolve().parents[1] / "examples"


@dataclass(frozen=True, slots=True)
class Plan:
    """One run."""

    policy: str
    seed: int
    kills: bool = False  # an engine and a satellite's trainer are killed in it

    @property
    def name(self) -> str:
        """Of its folder."""
        return f"{self.policy}-seed{self.seed}{'-kills' if self.kills else ''}"

    @classmethod
    def parse(cls, name: str) -> Plan:
        """Read a name back."""
        policy, _, rest = name.partition("-seed")
        seed, _, kills = rest.partition("-")
        return cls(policy, int(seed), bool(kills))


def prepared(out: Path, example: str, seed: int) -> Path:
    """Return the folder with a seed's model and tasks; make it where it is missing."""
    folder = out / f"start-seed{seed}"
    if not (folder / "model" / "model.safetensors").exists() or not (folder / "done").exists():
        program = [sys.executable, str(EXAMPLES / example / "prepare.py"), "--out", str(folder), "--seed", str(seed)]
        subprocess.run(program, check=True)
        (folder / "done").touch()
    return folder


def make_run(out: Path, example: str, plan: Plan, more: Sequence[str]) -> None:
    """Make one run of an example, or what is left of it; what it prints goes on.

    Raises:
        CalledProcessError: it failed.
    """
    start, folder = prepared(out, example, plan.seed), out / plan.name
    if (folder / "summary.json").exists() and read_run(folder).summary.complete:
        return
    gyre = [sys.executable, "-c", "from gyre.cli import main; main()"]
    settings = ["--set", f"policy={plan.policy}", "--set", f"seed={plan.seed}"]
    own = JOIN if plan.policy == "elastic" else ()
    command = [*gyre, "run", str(start / "settings.toml"), "--out", str(folder), "--resume", "--plain"]
    print(f"== {plan.name}", flush=True)
    with subprocess.Popen([*command, *settings, *own, *more], env={**os.environ, "OMP_NUM_THREADS": "1"}) as process:
        killer = Killer(folder)
        watching = threading.Thread(target=killer.run, daemon=True)
        if plan.kills:
            watching.start()
        code = process.wait()
        killer.stop()
    if code:
        raise subprocess.CalledProcessError(code, command)
