"""Makes a folder with all that the example needs: settings, harness, judge, tasks, and a tiny model.

The same arguments give the same files.

    python examples/doors/prepare.py [--out out/doors] [--seed 0]
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
from harness import TOOL
from teaching import LENGTH, Message, command_line, make_model, said, tasks

from gyre.atomic import write_text_atomic

HERE = Path(__file__).parent


def main() -> int:
    """Make the folder; return the exit code."""
    given = command_line(__doc__, HERE.parents[1] / "out" / "doors")
    out: Path = given.out
    out.mkdir(parents=True, exist_ok=True)
    for file in (HERE / "settings.toml", HERE / "harness.py", HERE.parent / "judge.py"):
        shutil.copy(file, out)
    write_text_atomic(out / "tasks.jsonl", "".join(json.dumps(task) + "\n" for task in tasks(given.seed)))
    make_model(out / "model", given.seed, conversation, TOOL)
    print(f"next: gyre run {out / 'settings.toml'} --out {out / 'run'}")
    return 0


def conversation(door: str) -> list[Message]:
    """Return an execution's messages in which every door is the same."""
    turn = said("go", {"to": door})
    between = [{"role": "tool", "content": door}, turn]
    return [{"role": "user", "content": door}, turn, *between * (LENGTH - 1)]


if __name__ == "__main__":
    sys.exit(main())
