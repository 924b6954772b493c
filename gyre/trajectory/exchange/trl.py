"""TRL: the batch on which `GRPOTrainer` computes its loss, padded.

Seen in trl 1.16.0, `trainer/grpo_trainer.py`: `_generate_and_score_completions` (fields and padding), `_prepare_inputs`
(how a batch is split), `_compute_loss`. A `rollout_func` cannot carry an advantage: TRL takes each reward less the mean
over the rows of a prompt, so siblings of one execution would shift it. The batch goes in behind that::

    class OnSamples(GRPOTrainer):
        def _generate_and_score_completions(self, inputs):
            return to_tensors(export(samples, "trl"))  # gyre.trajectory.objectives.tensors.to_tensors

Data, arrays of R rows, prompts padded on the left to P, completions on the right to C. A completion begins at the first
trained token:
    prompt_ids, prompt_mask (R, P), completion_ids, completion_mask (R, C): int64
    tool_mask (R, C): int64, 1 where trained, and in padding, as TRL has it; times completion_mask it is the loss mask
    old_per_token_logps (R, C): float32, of the behaviour policy, 0 where not trained
    advantages (R,): float32, A_e * N / (N_e * E)
    num_items_in_batch (): int64, the trained tokens of all rows, N
    execution, group: lists of R names, which TRL ignores
A record is a row without padding, named as `rollout_func` returns it: prompt_ids, completion_ids, logprobs, env_mask;
with advantage, execution and group.

Loss: the sum over tokens divided by num_items_in_batch (rescaled to the accumulation window, which is exact when the
window is the whole batch).

Settings: `loss_type="dapo"` (the default) or "cispo", `beta=0`, `num_iterations=1`, one optimizer step for all rows:
`per_device_train_batch_size * gradient_accumulation_steps` (times the processes) equal to R, with
`steps_per_generation` equal to `gradient_accumulation_steps`; `mask_truncated_completions=false`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..samples import Samples
from .padding import Side, padded, padding_mask
from .rows import read_row, samples_from, trained_in_step, trained_rows

SUMMARY = "TRL: the batch behind GRPOTrainer's loss, padded"
LOST = "scores, versions, edges, roles"


def export(samples: Samples, *, pad_token_id: int = 0) -> dict[str, Any]:
    """Return the batch; see the module.

    Args:
        samples: a whole step.
        pad_token_id: what stands in padding.
    """
    total = trained_in_step(samples)
    unpadded = [
        {
            "prompt_ids": row.tokens[: row.prompt_length],
            "completion_ids": row.tokens[row.prompt_length :],
            "logprobs": row.logprobs[row.prompt_length :],
            "env_mask": row.loss_mask[row.prompt_length :].astype(np.int64),
            "advantage": row.weight * total,
            "execution": row.execution,
            "group": row.group,
        }
        for row in trained_rows(samples)
    ]
    return from_records(unpadded, pad_token_id=pad_token_id)


def load(data: dict[str, Any]) -> Samples:
    """Return the samples behind a batch; without `execution` each row is an execution of its own.

    Arrays may be torch tensors on the CPU.
    """
    total = max(int(data["num_items_in_batch"]), 1)
    rows = []
    for index, row in enumerate(records(data)):
        before = np.zeros(len(row["prompt_ids"]), np.int64)
        rows.append(
            read_row(
                index,
                tokens=np.concatenate((row["prompt_ids"], row["completion_ids"])),
                loss_mask=np.concatenate((before, row["env_mask"])),
                logprobs=np.concatenate((before, row["logprobs"])),
                weights=row["advantage"] / total,
                execution=row.get("execution"),
                group=row.get("group", ""),
            )
        )
    return samples_from(rows)


def records(data: dict[str, Any]) -> list[dict[str, Any]]:
    """Return one dict a row, without padding."""
    names = [name for name in ("execution", "group") if name in data]
    tensors = {name: np.asarray(data[name]) for name in _TENSORS}
    tool_mask = np.asarray(data["tool_mask"]) if "tool_mask" in data else np.ones_like(tensors["completion_mask"])
    found = []
    for index, advantage in enumerate(tensors["advantages"].tolist()):
        prompt, completion = tensors["prompt_mask"][index] != 0, tensors["completion_mask"][index] != 0
        row: dict[str, Any] = {
            "prompt_ids": tensors["prompt_ids"][index][prompt],
            "completion_ids": tensors["completion_ids"][index][completion],
            "logprobs": tensors["old_per_token_logps"][index][completion],
            "env_mask": tool_mask[index][completion],
            "advantage": advantage,
        }
        row.update({name: data[name][index] for name in names})
        found.append(row)
    return found


def from_records(rows: list[dict[str, Any]], *, pad_token_id: int = 0) -> dict[str, Any]:
    """Return a padded batch of rows, which are all that is trained in one optimizer step."""
    columns = {name: [np.asarray(row[name]) for row in rows] for name in _UNPADDED}
    return {
        "prompt_ids": padded(columns["prompt_ids"], Side.LEFT, pad_token_id, np.int64),
        "prompt_mask": padding_mask(columns["prompt_ids"], Side.LEFT),
        "completion_ids": padded(columns["completion_ids"], Side.RIGHT, pad_token_id, np.int64),
        "completion_mask": padding_mask(columns["completion_ids"], Side.RIGHT),
        "tool_mask": padded(columns["env_mask"], Side.RIGHT, 1, np.int64),
        "old_per_token_logps": padded(columns["logprobs"], Side.RIGHT, 0, np.float32),
        "advantages": np.array([row["advantage"] for row in rows], np.float32),
        "num_items_in_batch": np.array(sum(int(np.count_nonzero(mask)) for mask in columns["env_mask"])),
        "execution": [row["execution"] for row in rows],
        "group": [row["group"] for row in rows],
    }


_TENSORS = (
    "prompt_ids",
    "prompt_mask",
    "completion_ids",
    "completion_mask",
    "old_per_token_logps",
    "advantages",
)
_UNPADDED = ("prompt_ids", "completion_ids", "logprobs", "env_mask")
