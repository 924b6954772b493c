"""Samples as one dict of NumPy arrays, in CSR rows; the exact inverse is `load`.

Fields, R rows, T tokens and E executions:
    row_start (R + 1): int64; row_execution (R): int32; row_role (R): int8, index into list(Role)
    tokens (T): int32; loss_mask (T): bool; logprobs (T): float32; versions (T): int32; edges (T): int64
    positions (T): int32, in the row; loss_weights (T): float64, A_e / (N_e * E) where trained, else 0
    score, advantage, token_weight (E): float64; trained_tokens (E): int64
    execution, group: lists of E names; step_counted: E; dropped: dict of name to reason

Loss: minus the sum over tokens of loss_weights times the objective; nothing is divided.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from ..samples import TOKEN_FIELDS, SampleExecutions, Samples
from . import plain

SUMMARY = "one dict of NumPy arrays, CSR rows"
LOST = "nothing; in files, executions without rows and those that were dropped"

_ROW_FIELDS: dict[str, type[np.generic]] = {"row_start": np.int64, "row_execution": np.int32, "row_role": np.int8}
_EXECUTION_ARRAYS: dict[str, type[np.generic]] = {
    "score": np.float64,
    "advantage": np.float64,
    "trained_tokens": np.int64,
    "token_weight": np.float64,
}


def export(samples: Samples) -> dict[str, Any]:
    """Return the arrays, the samples' own where they have them; see the module."""
    table = {field.name: getattr(samples.executions, field.name) for field in fields(SampleExecutions)}
    return {
        **{name: getattr(samples, name) for name in (*_ROW_FIELDS, *TOKEN_FIELDS)},
        "positions": samples.positions(),
        "loss_weights": samples.loss_weights(),
        **{name: table[name] for name in _EXECUTION_ARRAYS},
        "execution": list(table["execution"]),
        "group": list(table["group"]),
        "step_counted": table["step_counted"],
        "dropped": dict(samples.dropped),
    }


def load(data: dict[str, Any]) -> Samples:
    """Return the samples of which these are the arrays; they may be torch tensors on the CPU."""
    arrays = {name: np.asarray(data[name], kind) for name, kind in {**_ROW_FIELDS, **TOKEN_FIELDS}.items()}
    table: dict[str, Any] = {name: np.asarray(data[name], kind) for name, kind in _EXECUTION_ARRAYS.items()}
    executions = SampleExecutions(
        execution=tuple(data["execution"]), group=tuple(data["group"]), step_counted=data["step_counted"], **table
    )
    return Samples(**arrays, executions=executions, dropped=dict(data["dropped"]))


def records(data: dict[str, Any]) -> list[dict[str, Any]]:
    """Return one dict a row, as `plain` has them."""
    return plain.export(load(data))


def from_records(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the arrays of rows as `plain` has them."""
    return export(plain.load(rows))
