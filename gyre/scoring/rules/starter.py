"""A rules file to begin with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...errors import InputError
from .kinds import KINDS

_HEAD: Final = """\
# Rules that score executions; docs/scoring.md describes every key.
combine = "mean"        # or "all": 1 if every rule passes, else 0
seconds = 600           # for all rules together

[stages.process]        # process checks are switched on later: sparse first
from_version = 100
ramp_versions = 50
cap = 0.2               # most that they add to the score
"""

_RULES: Final = {
    "command": """
[[rules]]
name = "tests"
kind = "command"
command = "python3 -m unittest discover -s tests"   # split into words; no shell reads it
weight = 3
seconds = 300
""",
    "regex": """
[[rules]]
name = "no key in the code"
kind = "regex"
file = "main.py"        # or: answer = true, or: output_of = "another rule"
pattern = 'sk-[A-Za-z0-9]{20,}'
must = "not_match"
weight = 0
cap = 0.5               # the score is 0.5 at most while this fails
""",
    "json_schema": """
[[rules]]
name = "report has its form"
kind = "json_schema"
file = "report.json"
inline_schema = { type = "object", required = ["total"], properties = { total = { type = "number" } } }
""",
    "sql": """
[[rules]]
name = "three orders"
kind = "sql"
database = "shop.db"
query = "SELECT count(*) FROM orders"
rows = [[3]]            # or: rows = { task = "rows" }, a field of the task's data
""",
    "file": """
[[rules]]
name = "something was written"
kind = "file"
glob = "**/*.py"
at_least = 1
gate = true             # the score is 0 while this fails
weight = 0
""",
    "limit": """
[[rules]]
name = "few steps"
kind = "limit"
of = "steps"            # or "tool_calls"
at_most = 60
zero_above = 120        # between the two it falls linearly
""",
    "python": """
[[rules]]
name = "own judgement"
kind = "python"
function = "my_rules:judge"   # judge(subject) returns a share; the module is beside this file
""",
}


def starter(kinds: Sequence[str] = ()) -> tuple[str, int]:
    """Return a rules file with a rule of each of `kinds`, by default of all, and their number.

    Raises:
        InputError: a kind is unknown.
    """
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown:
        raise InputError(f"--kind {unknown[0]}: no kind of rule; known kinds: {', '.join(KINDS)}")
    chosen = [kind for kind in KINDS if not kinds or kind in kinds]
    return _HEAD + "".join(_RULES[kind] for kind in chosen), len(chosen)
