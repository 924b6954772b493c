"""Rows as a list of plain dicts, for a training loop of one's own; nothing of them is lost.

Fields of a row of t tokens; arrays have t entries:
    tokens: int32; loss_mask: bool, where trained
    logprobs: float32, of the behaviour policy, 0 where not trained
    versions: int32, weights that sampled each trained token, -1 elsewhere or where unknown
    edges: int64, equal in two rows of an execution where they have the same token after the same prefix
    loss_weights: float64, A_e / (N_e * E) where trained, else 0
    execution, group, role: str; score: float or None

Loss: minus the sum over tokens of loss_weights times the objective; nothing is divided. As weights are absolute, any
part of a step may be exported. Rows without a trained token are kept. `numpy` and `torch` are the same with CSR arrays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import InputError
from ...role import Role
from ..samples import Samples
from .rows import Row, all_rows, read_row, samples_from

SUMMARY = "a list of dicts, for a training loop of one's own"
LOST = "executions without rows"

_ROLES = list(Role)


def export(samples: Samples) -> list[dict[str, Any]]:
    """Return one dict a row, its arrays as lists; see the module."""
    return [
        {
            "tokens": row.tokens.tolist(),
            "loss_mask": row.loss_mask.tolist(),
            "logprobs": row.logprobs.tolist(),
            "versions": row.versions.tolist(),
            "edges": None if row.edges is None else row.edges.tolist(),
            "loss_weights": np.where(row.loss_mask, row.weight, 0.0).tolist(),
            "execution": row.execution,
            "group": row.group,
            "role": _ROLES[row.role].value,
            "score": None if math.isnan(row.score) else row.score,
        }
        for row in all_rows(samples)
    ]


def load(data: Sequence[dict[str, Any]]) -> Samples:
    """Return the samples that consist of these rows; all but tokens, loss_mask and loss_weights may lack."""
    return samples_from([_row(index, row) for index, row in enumerate(data)])


def _row(index: int, row: dict[str, Any]) -> Row:
    score, edges = row.get("score"), row.get("edges")
    role = row.get("role", Role.MAIN.value)
    if role not in _ROLES:
        raise InputError(f"row {index}: there is no role {role!r}; choose one of {', '.join(_ROLES)}")
    return read_row(
        index,
        tokens=row["tokens"],
        loss_mask=row["loss_mask"],
        logprobs=row.get("logprobs"),
        versions=row.get("versions"),
        weights=row["loss_weights"],
        execution=row.get("execution"),
        group=row.get("group", ""),
        role=_ROLES.index(Role(role)),
        score=math.nan if score is None else float(score),
        edges=None if edges is None else np.asarray(edges, np.int64),
    )


def records(data: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows as they are."""
    return data


def from_records(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows as they are."""
    return rows
