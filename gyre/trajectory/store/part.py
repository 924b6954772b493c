"""A part: the rows of one or more whole executions, written once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

import polars as pl

from ..execution import ExecutionRecord
from ..tree import Tree
from .call_table import CALL_SCHEMA, call_frame, refusals, tree_calls
from .catalogue import Entry
from .checked_file import read_table, write_table
from .manifest import Part
from .node_table import NODE_SCHEMA, NodeArrays, node_arrays, node_frame

Item = tuple[ExecutionRecord, Tree]

PART_TOKENS: Final = 1 << 18
"""Small executions share a part up to this many unique tokens; a larger one has a part of its own.

To read one execution its part is read: so at most this much of others (some 600 KB) is read with it, while many small
executions do not each pay for two files.
"""


_OVERHEAD_TOKENS: Final = 256  # what an execution takes apart from its tokens, in memory and on disk


def part_share(unique_tokens: int) -> int:
    """Return what an execution takes of `PART_TOKENS`."""
    return unique_tokens + _OVERHEAD_TOKENS


def batches(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Divide items, in order, into those of each part."""
    batch: list[Item] = []
    tokens = 0
    for item in items:
        size = part_share(item[1].unique_tokens)
        if batch and tokens + size > PART_TOKENS:
            yield batch
            batch, tokens = [], 0
        batch.append(item)
        tokens += size
    if batch:
        yield batch


def write_part(folder: Path, number: int, items: Sequence[Item]) -> tuple[Part, list[Entry]]:
    """Write the two files of part `number`; return it and its executions' entries.

    Raises:
        InputError: the system refuses.
    """
    entries: list[Entry] = []
    first_node = first_call = 0
    for record, tree in items:
        entries.append(Entry.of(record, tree, number, first_node, first_call))
        first_node += entries[-1].nodes
        first_call += entries[-1].calls + entries[-1].refused
    trees = [tree for _, tree in items]
    part = Part(
        number=number,
        executions=len(items),
        nodes=write_table(folder / f"nodes-{number:06d}.parquet", node_frame(trees)),
        calls=write_table(folder / f"calls-{number:06d}.parquet", call_frame(trees)),
    )
    return part, entries


@dataclass(frozen=True, slots=True, eq=False)
class PartTables:
    """The tables of a part, read and found whole."""

    nodes: pl.DataFrame
    calls: pl.DataFrame

    @classmethod
    def read(cls, folder: Path, part: Part) -> PartTables:
        """Read `part`.

        Raises:
            DamagedFileError: a file of the part is damaged.
            MissingFileError: a file of the part is not there.
            InputError: a file is of another version of gyre.
        """
        return cls(read_table(folder, part.nodes, NODE_SCHEMA), read_table(folder, part.calls, CALL_SCHEMA))

    def item(self, entry: Entry) -> Item:
        """Return the execution of `entry`, which is in this part."""
        arrays = node_arrays(self.nodes.slice(entry.first_node, entry.nodes))
        refused = entry.first_call + entry.calls
        tree = Tree(
            execution=entry.record.execution,
            harness=entry.recorded_harness,
            calls=tree_calls(self.calls.slice(entry.first_call, entry.calls)),
            refused=refusals(self.calls.slice(refused, entry.refused)),
            duplicate_tokens=entry.duplicate_tokens,
            max_logprob_difference=entry.max_logprob_difference,
            **{name: getattr(arrays, name) for name in _NODE_FIELDS},
        )
        return entry.record, tree


_NODE_FIELDS: Final = tuple(field.name for field in fields(NodeArrays))
