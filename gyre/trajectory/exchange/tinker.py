"""Tinker: one datum a row, as the arguments of `tinker.Datum`, already shifted by one.

Seen in tinker 0.38.0 (`types/datum.py`) and tinker-cookbook 0.6.1 (`rl/data_processing.py`, `rl/train.py`), and the
documentation of its losses.

Fields of a row of t tokens; entry i speaks of predicting token i + 1, so all have t - 1 entries:
    model_input: list of int, the tokens but the last, for `ModelInput.from_ints`
    loss_fn_inputs, of arrays:
        target_tokens: int64, the tokens but the first
        logprobs: float32, 0 where not trained
        advantages: float32, A_e / (N_e * E) where trained, else 0
        mask: float32, 1 where trained; the cookbook reads it for its metrics and takes it out before `forward_backward`
    execution, group: str, beside the datum's own; Tinker has no place for them

Loss: the sum over all tokens of all datums; nothing is divided. So weights are absolute, and a part of a step may go
into a call of its own, as long as one `optim_step` follows all parts.

Settings: loss_fn "importance_sampling", "ppo" or "cispo".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..samples import Samples
from .rows import read_row, samples_from, trained_rows

SUMMARY = "Tinker: arguments of Datum, shifted by one"
LOST = "scores, versions, edges, roles; execution and group stand beside the datum"


def export(samples: Samples) -> list[dict[str, Any]]:
    """Return one dict a row; see the module."""
    return [
        {
            "model_input": row.tokens[:-1].tolist(),
            "loss_fn_inputs": {
                "target_tokens": row.tokens[1:].astype(np.int64),
                "logprobs": row.logprobs[1:].copy(),
                "advantages": np.where(row.loss_mask[1:], row.weight, 0.0).astype(np.float32),
                "mask": row.loss_mask[1:].astype(np.float32),
            },
            "execution": row.execution,
            "group": row.group,
        }
        for row in trained_rows(samples)
    ]


def load(data: Sequence[dict[str, Any]]) -> Samples:
    """Return the samples behind datums; one without `execution` is an execution of its own.

    Without a mask, a token is trained where its advantage is not 0.
    """
    rows = []
    for index, datum in enumerate(data):
        inputs = datum["loss_fn_inputs"]
        advantages = np.asarray(inputs["advantages"], np.float64)
        mask = np.asarray(inputs.get("mask", advantages)) != 0
        rows.append(
            read_row(
                index,
                tokens=[*datum["model_input"][:1], *np.asarray(inputs["target_tokens"]).tolist()],
                loss_mask=[False, *mask],
                logprobs=[0.0, *np.asarray(inputs["logprobs"])],
                weights=[0.0, *advantages],
                execution=datum.get("execution"),
                group=datum.get("group", ""),
            )
        )
    return samples_from(rows)


def records(data: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows as they are."""
    return data


def from_records(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows with arrays of their types."""
    return [{**row, "loss_fn_inputs": _arrays(row["loss_fn_inputs"])} for row in rows]


def _arrays(inputs: dict[str, Any]) -> dict[str, Any]:
    return {name: np.asarray(values, _KINDS.get(name, np.float32)) for name, values in inputs.items()}


_KINDS: dict[str, type[np.generic]] = {"target_tokens": np.int64}
