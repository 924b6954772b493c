"""The examples' judge: the score is the share of the task's doors that were taken when they were named.

What was taken stands in the file `taken`, a door a line. An agent may leave anything there, or no file: that is judged
too, for else it could choose not to be.
"""

import json
import os
from pathlib import Path

MOST_CHARACTERS = 10_000


def noted(file):
    """Return the lines of a file, as far as there are any."""
    try:
        if not file.is_file():
            return []
        with file.open(errors="replace") as text:
            return text.read(MOST_CHARACTERS).split("\n")
    except OSError:
        return []


doors = json.loads(Path(os.environ["GYRE_SUBJECT"]).read_text())["data"]["doors"]
taken = noted(Path("taken")) + [""] * len(doors)
checks = [
    {"name": f"door {at}", "passed": float(door == named)}
    for at, (door, named) in enumerate(zip(taken, doors, strict=False), start=1)
]
print(json.dumps({"score": sum(check["passed"] for check in checks) / len(checks), "checks": checks}))
