"""Samples of random small executions, made with dicts of prefixes and no code of the package but its dataclasses."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from gyre.arrays import row_starts
from gyre.role import Role
from gyre.trajectory.samples import SampleExecutions, Samples

Edge = tuple[str, tuple[int, ...]]  # an execution, and the tokens up to and with the one that is predicted


@st.composite
def samples_of_a_step(draw: st.DrawFn) -> Samples:
    """Several executions in groups; rows of one share prefixes, and a token is trained in the first row that has it."""
    names = [f"e{number}" for number in range(draw(st.integers(1, 4)))]
    rows: list[dict[str, Any]] = []
    for name in names:
        rows += _rows(draw, name)
    for row in rows[:1]:  # so that something is trained
        row["loss_mask"][-1] = True
    advantages = draw(st.lists(st.floats(-3, 3, width=32), min_size=len(names), max_size=len(names)))
    groups = draw(st.lists(st.sampled_from(["g0", "g1"]), min_size=len(names), max_size=len(names)))
    return assembled(rows, names, groups, advantages)


def _rows(draw: st.DrawFn, name: str) -> list[dict[str, Any]]:
    paths = draw(st.lists(st.lists(st.integers(1, 3), min_size=2, max_size=7), min_size=1, max_size=3))
    number: dict[tuple[int, ...], int] = {}
    sampled: dict[tuple[int, ...], bool] = {}
    rows = []
    for path in paths:
        prefixes = [tuple(path[: end + 1]) for end in range(len(path))]
        mask = []
        for prefix in prefixes:
            new = prefix not in number
            number.setdefault(prefix, len(number))
            sampled.setdefault(prefix, len(prefix) > 1 and draw(st.booleans()))
            mask.append(new and sampled[prefix])
        edges = [number[prefix] for prefix in prefixes]
        rows.append({"execution": name, "tokens": path, "loss_mask": mask, "edges": edges})
    return rows


def assembled(rows: list[dict[str, Any]], names: list[str], groups: list[str], advantages: list[float]) -> Samples:
    """Samples of rows, with A_e / (N_e * E) by their definition."""
    trained = [sum(sum(row["loss_mask"]) for row in rows if row["execution"] == name) for name in names]
    counted = sum(count > 0 for count in trained)
    weights = [a / (n * counted) if n else 0.0 for a, n in zip(advantages, trained, strict=True)]
    mask = np.array([value for row in rows for value in row["loss_mask"]], np.bool_)
    edges = np.array([value for row in rows for value in row["edges"]], np.int64)
    return Samples(
        row_start=row_starts(np.array([len(row["tokens"]) for row in rows])),
        row_execution=np.array([names.index(row["execution"]) for row in rows], np.int32),
        row_role=np.full(len(rows), list(Role).index(Role.SUB_AGENT), np.int8),
        tokens=np.array([value for row in rows for value in row["tokens"]], np.int32),
        loss_mask=mask,
        logprobs=np.where(mask, -0.125 * (edges + 1), 0).astype(np.float32),
        versions=np.where(mask, 7, -1).astype(np.int32),
        edges=edges,
        executions=SampleExecutions(
            execution=tuple(names),
            group=tuple(groups),
            score=np.arange(len(names), dtype=np.float64),
            advantage=np.array(advantages),
            trained_tokens=np.array(trained, np.int64),
            token_weight=np.array(weights),
        ),
        dropped={},
    )


def defined_coefficients(samples: Samples) -> dict[Edge, float]:
    """A_e / (N_e * E) of each trained token, by execution and prefix; the others are not there."""
    found: dict[Edge, float] = {}
    table = samples.executions
    for row in range(samples.rows):
        at, execution = samples.row(row), int(samples.row_execution[row])
        tokens = samples.tokens[at].tolist()
        for place in np.flatnonzero(samples.loss_mask[at]).tolist():
            weight = table.advantage[execution] / (table.trained_tokens[execution] * table.counted)
            found[table.execution[execution], tuple(tokens[: place + 1])] = float(weight)
    return found
