"""slime and miles: one `Sample` a row, as the dict that `Sample.from_dict` takes.

Seen in copies of slime and miles without a release number: `slime/utils/types.py` (`Sample`), `slime/ray/rollout.py`
(`_post_process_rewards`, `_convert_samples_to_train_data`), `slime/utils/dp_schedule.py`, and in miles
`miles/ray/rollout/train_data_conversion.py`, which has the same fields and sums. Copies older than `rollout_id` take
the mean over rows instead: the loss is then not this one.

Fields of a row of t tokens, the last r of them the response, which begins at the first trained token:
    tokens: list of int, t
    response_length: int, r
    loss_mask: list of int, r, 1 where trained
    rollout_log_probs: list of float, r, 0 where not trained
    reward: float, A_e
    rollout_id: int, the same for all rows of an execution; group_index: int, of its group; index: int, the row
    weight_versions: list of str, the versions of the trained tokens in order of appearance, without repetition
    status: "completed"; prompt and response: "", for the text is not known
    metadata: execution, group, and raw_reward (the score, which they log in place of A_e)

Loss: they divide each token's loss by `rollout_mask_sums`, the trained tokens of all rows with its rollout_id (N_e),
sum, and divide by the rollouts of the step (E).

Settings: `--advantage-estimator grpo`, `--disable-rewards-normalization` (the reward is then the advantage of each
token), `--global-batch-size` E and one step per rollout (rollouts beyond a multiple of it are dropped without a word),
`--kl-coef 0`; not `--calculate-per-token-loss`, not `--normalize-advantages`. `--use-rollout-logprobs` takes the ratio
to the behaviour policy.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..samples import Samples
from .rows import Row, read_row, samples_from, trained_in_step, trained_rows

SUMMARY = "slime and miles: dicts for Sample.from_dict"
LOST = "edges, roles; versions where a row has several"


def export(samples: Samples) -> list[dict[str, Any]]:
    """Return one dict a row; see the module."""
    trained_in_step(samples)
    rows = trained_rows(samples)
    advantage = dict(zip(samples.executions.execution, samples.executions.advantage.tolist(), strict=True))
    executions = {name: number for number, name in enumerate(dict.fromkeys(row.execution for row in rows))}
    groups = {name: number for number, name in enumerate(dict.fromkeys(row.group for row in rows))}
    return [
        {
            "group_index": groups[row.group],
            "index": index,
            "rollout_id": executions[row.execution],
            "prompt": "",
            "tokens": row.tokens.tolist(),
            "response": "",
            "response_length": len(row.tokens) - row.prompt_length,
            "reward": advantage[row.execution],
            "loss_mask": row.loss_mask[row.prompt_length :].astype(np.int64).tolist(),
            "rollout_log_probs": row.logprobs[row.prompt_length :].tolist(),
            "weight_versions": _versions(row),
            "status": "completed",
            "metadata": _metadata(row),
        }
        for index, row in enumerate(rows)
    ]


def _versions(row: Row) -> list[str]:
    known = row.versions[row.loss_mask & (row.versions >= 0)]
    return [str(version) for version in dict.fromkeys(known.tolist())]


def _metadata(row: Row) -> dict[str, Any]:
    named = {"execution": row.execution, "group": row.group}
    return named if math.isnan(row.score) else {**named, "raw_reward": row.score}


def load(data: Sequence[dict[str, Any]]) -> Samples:
    """Return the samples behind rows of slime or miles; rewards are taken for advantages.

    A row without `rollout_id` is an execution of its own, and one without `loss_mask` is trained on all of its
    response, as in slime; `remove_sample` masks it out. Names come from `metadata`, else from the numbers.
    """
    masks = [_mask(row) for row in data]
    given = [row.get("rollout_id") for row in data]
    rollouts = [f"row-{index}" if rollout is None else rollout for index, rollout in enumerate(given)]
    trained: Counter[Any] = Counter()
    for rollout, mask in zip(rollouts, masks, strict=True):
        trained[rollout] += sum(map(bool, mask))
    counted = sum(count > 0 for count in trained.values())
    rows = []
    for index, (sample, mask, rollout) in enumerate(zip(data, masks, rollouts, strict=True)):
        total = trained[rollout]
        metadata = sample.get("metadata") or {}
        before = [0] * (len(sample["tokens"]) - len(mask))
        logprobs = sample.get("rollout_log_probs")
        rows.append(
            read_row(
                index,
                tokens=sample["tokens"],
                loss_mask=[*before, *mask],
                logprobs=None if logprobs is None else [*before, *logprobs],
                versions=_only_version(sample),
                weights=float(sample["reward"]) / (total * counted) if total else 0.0,
                execution=str(metadata.get("execution", rollout)),
                group=str(metadata.get("group", sample.get("group_index", ""))),
                score=float(metadata.get("raw_reward", math.nan)),
            )
        )
    return samples_from(rows)


def _mask(sample: dict[str, Any]) -> list[int]:
    length = int(sample["response_length"])
    if sample.get("remove_sample"):
        return [0] * length
    mask = sample.get("loss_mask")
    return [1] * length if mask is None else list(mask)


def _only_version(sample: dict[str, Any]) -> list[int] | None:
    """One version for all tokens, where the row names one that is a number."""
    versions = set(sample.get("weight_versions") or ())
    if len(versions) != 1:
        return None
    version = str(versions.pop())
    return [int(version)] * len(sample["tokens"]) if version.isdecimal() else None


def records(data: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows as they are."""
    return data


def from_records(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows as they are."""
    return rows
