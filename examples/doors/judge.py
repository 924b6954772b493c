"""The example's judge: the score is the share of the task's doors that were taken when they were named."""

import json
import os
from pathlib import Path

doors = json.loads(Path(os.environ["GYRE_SUBJECT"]).read_text())["data"]["doors"]
walk = Path("walk.json")
taken = json.loads(walk.read_text())["taken"] if walk.exists() else []
taken += [None] * (len(doors) - len(taken))
checks = [
    {"name": f"door {at}", "passed": float(door == named)}
    for at, (door, named) in enumerate(zip(taken, doors, strict=True), start=1)
]
print(json.dumps({"score": sum(check["passed"] for check in checks) / len(checks), "checks": checks}))
