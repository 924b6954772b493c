"""prime-rl: one `TrainingSample` a row, as the keyword arguments of that struct.

Seen in a copy of PrimeIntellect-ai/prime-rl without a release number: `src/prime_rl/transports/batch/types.py`
(`TrainingSample`). Its mean is taken from the comments there and from its documentation of algorithms.

Fields of a row of t tokens; lists have t entries, aligned with the tokens:
    token_ids: list of int
    mask: list of bool, where trained
    logprobs: list of float, 0 where not trained
    temperatures: list of float, of sampling
    env_name: str
    rl_weights: list of float, N / (E * N_e) where trained, else 0; N is the trained tokens of the step
    advantages: list of float, A_e where trained, else 0
    trace_id: str, the execution; branch_index: int, the row's number in it

Loss: the sum over tokens with mask and rl_weights not 0 of rl_weights times the token's loss, divided by the number of
such tokens in the step, N.

Settings: all rows in one step (one batch), `trainer.loss.adv_tau` 1, `kl_tau` 0 for the bare policy gradient (else its
term has the same weights).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..samples import Samples
from .rows import read_row, samples_from, trained_in_step, trained_rows

SUMMARY = "prime-rl: keyword arguments of TrainingSample"
LOST = "groups, scores, versions, edges, roles"


def export(samples: Samples, *, temperature: float = 1.0, env_name: str = "gyre") -> list[dict[str, Any]]:
    """Return one dict a row; see the module.

    Args:
        samples: a whole step.
        temperature: at which all tokens were sampled; prime-rl divides its logits by it.
        env_name: under which prime-rl logs the rows.
    """
    total = trained_in_step(samples)
    table = samples.executions
    advantage = dict(zip(table.execution, table.advantage.tolist(), strict=True))
    trained = dict(zip(table.execution, table.trained_tokens.tolist(), strict=True))
    branches: Counter[str] = Counter()
    found = []
    for row in trained_rows(samples):
        scale = total / (table.counted * trained[row.execution])
        found.append(
            {
                "token_ids": row.tokens.tolist(),
                "mask": row.loss_mask.tolist(),
                "logprobs": row.logprobs.tolist(),
                "temperatures": [temperature] * len(row.tokens),
                "env_name": env_name,
                "rl_weights": np.where(row.loss_mask, scale, 0.0).tolist(),
                "advantages": np.where(row.loss_mask, advantage[row.execution], 0.0).tolist(),
                "trace_id": row.execution,
                "branch_index": branches[row.execution],
            }
        )
        branches[row.execution] += 1
    return found


def load(data: Sequence[dict[str, Any]]) -> Samples:
    """Return the samples behind prime-rl's; a row without `trace_id` is an execution of its own.

    Tokens whose rl_weights are 0 are not trained; without rl_weights they are 1.
    """
    weights = [_rl_weights(row) for row in data]
    masks = [
        np.asarray(row["mask"], bool) & (weight != 0) if len(weight) == len(row["mask"]) else row["mask"]
        for row, weight in zip(data, weights, strict=True)
    ]
    total = max(sum(int(np.count_nonzero(mask)) for mask in masks), 1)
    return samples_from(
        [
            read_row(
                index,
                tokens=row["token_ids"],
                loss_mask=mask,
                logprobs=row["logprobs"],
                weights=weight * np.asarray(row["advantages"], np.float64) / total,
                execution=row.get("trace_id"),
            )
            for index, (row, mask, weight) in enumerate(zip(data, masks, weights, strict=True))
        ]
    )


def _rl_weights(row: dict[str, Any]) -> np.ndarray[Any, np.dtype[np.float64]]:
    given = row.get("rl_weights")
    return np.ones(len(row["token_ids"])) if given is None else np.asarray(given, np.float64)


def records(data: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows as they are."""
    return data


def from_records(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows as they are."""
    return rows
