"""The program that `gyre.scoring.rules.apart` runs by its path: one JSON question on stdin, one JSON answer on stdout.

It imports nothing of gyre: that would take longer than most questions.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """Return the answer of the module that is named as the question is."""
    name = question["question"]
    spec = importlib.util.spec_from_file_location(f"judge_{name}", Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: dict[str, Any] = module.judge(question)
    return found


def main() -> None:
    """Answer the question on stdin. Whatever else the judge prints goes to stderr."""
    out, sys.stdout = sys.stdout, sys.stderr
    question = json.loads(sys.stdin.buffer.read())
    sys.path.extend(question["path"])
    print("\n" + json.dumps(answer(question)), file=out, flush=True)


if __name__ == "__main__":
    main()
