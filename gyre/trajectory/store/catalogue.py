"""The executions of a store, and where each one's rows are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from ..execution import ExecutionRecord
from ..tree import Tree

CATALOGUE_SCHEMA: Final[dict[str, Any]] = {
    "execution": pl.String,
    "group": pl.String,
    "score": pl.Float64,  # null: no valid score
    "harness": pl.String,
    "task": pl.String,
    "outcome": pl.String,
    "wall_s": pl.Float64,
    "recorded_harness": pl.String,  # as the calls name it
    "part": pl.Int64,
    "first_node": pl.Int64,  # row in the part's table of nodes
    "nodes": pl.Int64,
    "first_call": pl.Int64,  # row in the part's table of calls
    "calls": pl.Int64,  # in the tree
    "refused": pl.Int64,  # their rows follow those of `calls`
    "leaves": pl.Int64,
    "unique_tokens": pl.Int64,
    "sampled_tokens": pl.Int64,
    "duplicate_tokens": pl.Int64,
    "max_logprob_difference": pl.Float64,
}


@dataclass(frozen=True, slots=True)
class Entry:
    """A row of the catalogue."""

    record: ExecutionRecord
    recorded_harness: str
    part: int
    first_node: int
    nodes: int
    first_call: int
    calls: int
    refused: int
    leaves: int
    unique_tokens: int
    sampled_tokens: int
    duplicate_tokens: int
    max_logprob_difference: float

    @classmethod
    def of(cls, record: ExecutionRecord, tree: Tree, part: int, first_node: int, first_call: int) -> Entry:
        """Return the row of an execution whose rows begin there in the tables of `part`."""
        return cls(
            record=record,
            recorded_harness=tree.harness,
            part=part,
            first_node=first_node,
            nodes=len(tree.node_parent),
            first_call=first_call,
            calls=len(tree.calls),
            refused=len(tree.refused),
            leaves=len(tree.leaf_node),
            unique_tokens=tree.unique_tokens,
            sampled_tokens=tree.sampled_tokens,
            duplicate_tokens=tree.duplicate_tokens,
            max_logprob_difference=tree.max_logprob_difference,
        )


_RECORD: Final = ("execution", "group", "score", "harness", "task", "outcome", "wall_s")
_PLACE: Final = tuple(name for name in CATALOGUE_SCHEMA if name not in _RECORD)


def catalogue_frame(entries: Iterable[Entry]) -> pl.DataFrame:
    """Return entries as a table of `CATALOGUE_SCHEMA`."""
    rows = [
        (*(getattr(entry.record, name) for name in _RECORD), *(getattr(entry, name) for name in _PLACE))
        for entry in entries
    ]
    return pl.DataFrame(rows, schema=CATALOGUE_SCHEMA, orient="row")


def catalogue_entries(frame: pl.DataFrame) -> dict[str, Entry]:
    """Return the entries of a table of `CATALOGUE_SCHEMA` by execution, in its order."""
    entries = {}
    for row in frame.select(CATALOGUE_SCHEMA.keys()).iter_rows():
        record = ExecutionRecord(*row[: len(_RECORD)])
        entries[record.execution] = Entry(record, *row[len(_RECORD) :])
    return entries
