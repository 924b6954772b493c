"""The examples' judge: the score is the share of the task's doors that were taken when they were named.

What was taken stands in the file `taken`, a door a line.
"""

import json
import os
from pathlib import Path

doors = json.loads(Path(os.environ["GYRE_SUBJECT"]).read_text())["data"]["doors"]
notes = Path("taken")
taken = notes.read_text(errors="replace").split("\n") if notes.exists() else []
taken += [""] * len(doors)
checks = [
    {"name": f"door {at}", "passed": float(door == named)}
    for at, (door, named) in enumerate(zip(taken, doors, strict=False), start=1)
]
print(json.dumps({"score": sum(check["passed"] for check in checks) / len(checks), "checks": checks}))
