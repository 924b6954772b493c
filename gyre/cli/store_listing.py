"""What `gyre samples inspect` reads: a store, or recorded calls as they are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from ..errors import InputError
from ..trajectory.execution import ExecutionRecord
from ..trajectory.expand import expand
from ..trajectory.inspection import TokenText, TreeView
from ..trajectory.inspection.token_text import printable
from ..trajectory.recorded_calls import RecordedCalls
from ..trajectory.selection import Selection, select
from ..trajectory.store import TrajectoryStore
from ..trajectory.store.manifest import MANIFEST
from ..trajectory.tree import Tree
from .common import counted

_COLUMNS: Final = {  # of a row of the listing, with headings
    "execution": "execution",
    "group": "group",
    "score": "score",
    "harness": "harness",
    "calls": "calls",
    "refused": "refused",
    "leaves": "leaves",
    "unique_tokens": "unique tokens",
    "sampled_tokens": "sampled",
}
_WORDS: Final = ("execution", "group", "harness")


@dataclass(frozen=True, slots=True)
class Listing:
    """A row for each execution, groups together, and what of the source cannot be read."""

    rows: list[dict[str, Any]]
    problems: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """JSON-ready values."""
        return {"executions": self.rows, "problems": list(self.problems)}


def listed(source: Path) -> Listing:
    """Return what a store or recorded calls hold.

    Raises:
        InputError: there is no store and no recorded call.
    """
    problems: tuple[str, ...] = ()
    if (source / MANIFEST).exists():
        frame = TrajectoryStore.open(source).executions()
        rows = frame.select(list(_COLUMNS)).to_dicts()
    else:
        with RecordedCalls(source) as calls:
            rows = [_row(calls.record(name), calls.tree(name)) for name in calls.names]
            problems = calls.problems
    first: dict[str | None, int] = {}
    for place, row in enumerate(rows):
        first.setdefault(row["group"], place)
    return Listing(sorted(rows, key=lambda row: first[row["group"]]), problems)


def _row(record: ExecutionRecord | None, tree: Tree) -> dict[str, Any]:
    return {
        "execution": tree.execution,
        "group": record.group if record else None,
        "score": record.score if record else None,
        "harness": tree.harness,
        "calls": len(tree.calls),
        "refused": len(tree.refused),
        "leaves": len(tree.leaf_node),
        "unique_tokens": tree.unique_tokens,
        "sampled_tokens": tree.sampled_tokens,
    }


def listing_table(rows: list[dict[str, Any]]) -> Table:
    """Return the rows as a table, groups apart, with their sums below."""
    table = Table(show_footer=len(rows) > 1)
    sums = {name: f"{sum(row[name] for row in rows):,}" for name in list(_COLUMNS)[4:]}
    groups = len({row["group"] for row in rows})
    sums |= {"execution": counted(len(rows), "execution"), "group": counted(groups, "group")}
    for name, heading in _COLUMNS.items():
        side: Any = "left" if name in _WORDS else "right"
        table.add_column(heading, sums.get(name, ""), justify=side, overflow="fold")
    before = rows[0]["group"] if rows else None
    for row in rows:
        if row["group"] != before:
            table.add_section()
            before = row["group"]
        table.add_row(*(_cell(name, row[name]) for name in _COLUMNS))
    return table


def _cell(name: str, value: Any) -> Text:
    if value is None:
        return Text("–", "dim")
    if isinstance(value, float):
        return Text(f"{value:g}")
    if isinstance(value, int):
        return Text(f"{value:,}", "red" if name == "refused" and value else "")
    return Text(printable(value, 80))


def viewed(source: Path, execution: str, selection: Selection) -> tuple[TreeView, tuple[str, ...]]:
    """Return the tree of an execution with what `selection` takes of it, and what of the source cannot be read.

    Raises:
        InputError: there is no such execution, or a selection of the user's own is at fault.
    """
    problems: tuple[str, ...] = ()
    if (source / MANIFEST).exists():
        store = TrajectoryStore.open(source)
        _require(execution in store, source, execution)
        tree = store.read(execution)[1]
    else:
        with RecordedCalls(source) as calls:
            _require(execution in calls.names, source, execution)
            tree, problems = calls.tree(execution), calls.problems
    return TreeView(tree, expand(tree, select(tree, selection))), problems


def _require(there: bool, source: Path, execution: str) -> None:
    if not there:
        raise InputError(f"{source}: no execution {execution!r}; gyre samples inspect {source} lists those there")


def token_text_of(tokenizer: str | None) -> TokenText:
    """Return what shows tokens: a tokenizer's text, or ids without one."""
    return TokenText.of_tokenizer(tokenizer) if tokenizer else TokenText()
