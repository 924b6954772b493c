"""An execution's calls as rows of a table: those in its tree in commit order, then those that were refused."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

import numpy as np
import polars as pl

from ...arrays import Int8Array
from ...role import Role
from ..call import Finish
from ..tree import Refusal, Tree, TreeCalls

CALL_SCHEMA: Final[dict[str, Any]] = {
    "execution": pl.String,
    "call_id": pl.String,
    "sequence": pl.Int64,
    "thread": pl.String,
    "parent_thread": pl.String,
    "model": pl.String,
    "role": pl.String,
    "role_reason": pl.String,
    "finish": pl.String,
    "trainable": pl.Boolean,
    "input_tokens": pl.Int64,
    "output_tokens": pl.Int64,
    "input_node": pl.Int32,
    "input_offset": pl.Int64,
    "output_node": pl.Int32,
    "output_offset": pl.Int64,
    "start_s": pl.Float64,
    "end_s": pl.Float64,
    "refusal": pl.String,  # why it is not in the tree; null where it is. A refused call has no more than its id
    "refusal_text": pl.String,
}
_TEXTS: Final = ("thread", "parent_thread", "model", "role_reason")
_NUMBERS: Final = {
    name: dtype
    for name, dtype in CALL_SCHEMA.items()
    if dtype in {pl.Boolean, pl.Int32, pl.Int64, pl.Float64} and name != "sequence"
}
_ROLES: Final = tuple(role.value for role in Role)
_FINISHES: Final = tuple(finish.value for finish in Finish)


def call_frame(trees: Sequence[Tree]) -> pl.DataFrame:
    """Return the calls of trees as a table of `CALL_SCHEMA`: tree after tree, the C of each, then its refused ones."""
    calls = [tree.calls for tree in trees]
    counts = np.array([[len(tree.calls), len(tree.refused)] for tree in trees])
    executions = pl.Series([tree.execution for tree in trees])
    kept = pl.DataFrame(
        {
            "execution": executions.gather(np.repeat(np.arange(len(trees)), counts[:, 0])),
            "role": [_ROLES[code] for each in calls for code in each.role.tolist()],
            "finish": [_FINISHES[code] for each in calls for code in each.finish.tolist()],
            **{name: list(chain.from_iterable(getattr(each, name) for each in calls)) for name in ("call_id", *_TEXTS)},
            **{name: np.concatenate([getattr(each, name) for each in calls]) for name in ("sequence", *_NUMBERS)},
        },
        schema_overrides={**CALL_SCHEMA},
    )
    refused = pl.DataFrame(
        [
            (tree.execution, call.call_id, call.sequence, call.reason, call.text)
            for tree in trees
            for call in tree.refused
        ],
        schema={name: CALL_SCHEMA[name] for name in ("execution", "call_id", "sequence", "refusal", "refusal_text")},
        orient="row",
    )
    table = pl.concat([pl.DataFrame(schema=CALL_SCHEMA), kept, refused], how="diagonal")
    if len(trees) == 1 or refused.is_empty():
        return table
    of_tree = np.concatenate([np.repeat(np.arange(len(trees)), counts[:, column]) for column in (0, 1)])
    return table[np.argsort(of_tree, kind="stable")]


def tree_calls(frame: pl.DataFrame) -> TreeCalls:
    """Return what the rows of the calls in a tree, in order, stand for."""
    columns: dict[str, Any] = {name: frame[name].to_numpy(writable=True) for name in ("sequence", *_NUMBERS)}
    columns |= {name: tuple(frame[name].to_list()) for name in ("call_id", *_TEXTS)}
    return TreeCalls(role=_codes(frame["role"], _ROLES), finish=_codes(frame["finish"], _FINISHES), **columns)


def refusals(frame: pl.DataFrame) -> tuple[Refusal, ...]:
    """Return what the rows of refused calls stand for."""
    columns = ("call_id", "sequence", "refusal", "refusal_text")
    return tuple(Refusal(*row) for row in frame.select(columns).iter_rows())


def _codes(column: pl.Series, names: tuple[str, ...]) -> Int8Array:
    return np.array([names.index(name) for name in column.to_list()], np.int8)
