"""An execution's calls as rows of a table: those in its tree in commit order, then those that were refused."""

from __future__ import annotations

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


def call_frame(tree: Tree) -> pl.DataFrame:
    """Return the C calls of a tree and its refused ones as a table of `CALL_SCHEMA`."""
    calls = tree.calls
    kept = pl.DataFrame(
        {
            "execution": pl.repeat(tree.execution, len(calls), dtype=pl.String, eager=True),
            "call_id": calls.call_id,
            "sequence": calls.sequence,
            "role": [_ROLES[code] for code in calls.role.tolist()],
            "finish": [_FINISHES[code] for code in calls.finish.tolist()],
            **{name: getattr(calls, name) for name in (*_TEXTS, *_NUMBERS)},
        },
        schema_overrides={**CALL_SCHEMA},
    )
    refused = pl.DataFrame(
        [(tree.execution, call.call_id, call.sequence, call.reason, call.text) for call in tree.refused],
        schema={name: CALL_SCHEMA[name] for name in ("execution", "call_id", "sequence", "refusal", "refusal_text")},
        orient="row",
    )
    return pl.concat([pl.DataFrame(schema=CALL_SCHEMA), kept, refused], how="diagonal")


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
