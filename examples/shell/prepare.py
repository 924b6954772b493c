"""Makes a folder with all that the example needs: settings, the harness's configuration, judge, tasks, a tiny model.

The same arguments give the same files.

    python examples/shell/prepare.py [--out out/shell] [--seed 0]
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any, Final

import yaml

sys.path.append(str(Path(__file__).parents[1]))
from teaching import LENGTH, Message, command_line, make_model, said, tasks

from gyre.atomic import write_text_atomic

HERE: Final = Path(__file__).parent
AGENT: Final = yaml.safe_load((HERE / "mini.yaml").read_text())["agent"]
OUTSIDE: Final = "out"  # what the sign on the last door's other side says
SUBMIT: Final = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"

# As mini-swe-agent 2.4.6 describes it to the model.
BASH: Final = {
    "type": "function",
    "function": {
        "name": "bash",
        "description": "Execute a bash command",
        "parameters": {
            "type": "object",
            "properties": {"command": {"type": "string", "description": "The bash command to execute"}},
            "required": ["command"],
        },
    },
}


def main() -> int:
    """Make the folder; return the exit code."""
    given = command_line(__doc__, HERE.parents[1] / "out" / "shell")
    out: Path = given.out
    out.mkdir(parents=True, exist_ok=True)
    for file in (HERE / "settings.toml", HERE / "mini.yaml", HERE.parent / "judge.py"):
        shutil.copy(file, out)
    lines = [json.dumps(furnished(task, out)) + "\n" for task in tasks(given.seed)]
    write_text_atomic(out / "tasks.jsonl", "".join(lines))
    make_model(out / "model", given.seed, conversation, BASH)
    print(f"next: gyre run {out / 'settings.toml'} --out {out / 'run'}")
    return 0


def furnished(task: dict[str, Any], out: Path) -> dict[str, Any]:
    """Make the folder that a task's executions begin with; return the task that names it."""
    files = Path("files") / task["name"]
    (out / files).mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / "go", out / files)
    signs = [*task["data"]["doors"][1:], OUTSIDE]
    write_text_atomic(out / files / "signs", "".join(f"{sign}\n" for sign in signs))
    return {**task, "files": str(files)}


def conversation(door: str) -> list[Message]:
    """Return an execution's messages in which every door is the same."""
    begin = [{"role": "system", "content": AGENT["system_template"]}, {"role": "user", "content": door}]
    go = said("bash", {"command": f"./go {door}"})
    on = [go, {"role": "tool", "content": door}]
    return [*begin, *on * (LENGTH - 1), go, {"role": "tool", "content": OUTSIDE}, said("bash", {"command": SUBMIT})]


if __name__ == "__main__":
    sys.exit(main())
