"""verl: what `DataProto.from_dict` takes, padded to a rectangle.

Seen in verl 0.9.1: `trainer/ppo/core_algos.py` (`agg_loss`), `experimental/agent_loop/agent_loop.py` (padding),
`utils/model.py` (positions), `trainer/ppo/ray_trainer.py` (`compute_advantage`).

Data, as the three arguments of `DataProto.from_dict`; R rows, prompts padded on the left to P, responses on the right
to Q. A response begins at the first trained token:
    tensors, arrays (`gyre.trajectory.objectives.tensors.to_tensors` makes them tensors):
        prompts (R, P), responses (R, Q), input_ids (R, P + Q): int64
        attention_mask (R, P + Q), position_ids (R, P + Q), response_mask (R, Q): int64
        rollout_log_probs (R, Q): float32, 0 where not trained
        advantages (R, Q): float32, 0 where not trained
    non_tensors: uid (the group) and execution, (R,) of object
    meta_info: loss_agg_mode, for which the advantages are made
A record is a row without padding, named as in `AgentLoopOutput`: prompt_ids, response_ids, response_mask,
response_logprobs; with advantages, uid, execution and loss_agg_mode.

Loss (`agg_loss`, over the mini-batch on all ranks) and the advantage for it, w = A_e / (N_e * E):
    "token-sum": the sum over tokens; w. The only mode in which a part of a step may be exported by itself
    "token-mean": divided by the trained tokens of the mini-batch, N; w * N
    "seq-mean-token-sum": divided by the rows of the mini-batch, R; w * R

Settings: `actor.loss_agg_mode` as exported, `ppo_mini_batch_size` all rows, `use_kl_loss=false`, `entropy_coeff=0`, and
`old_log_probs` set to rollout_log_probs (`algorithm.rollout_correction.bypass_mode`) for the ratio to the behaviour
policy. Through verl's own loop, hand the advantages over as `token_level_rewards` (`rm_scores` in the v1 trainer), with
an estimator that returns what it gets::

    @register_adv_est("given")
    def given(token_level_rewards, response_mask, **_):
        advantages = token_level_rewards * response_mask
        return advantages, advantages
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import InputError
from ..samples import Samples
from .padding import Side, padded, padding_mask
from .rows import read_row, samples_from, trained_in_step, trained_rows

SUMMARY = "verl: arguments of DataProto.from_dict, padded"
LOST = "scores, versions, edges, roles"


class LossAggMode(StrEnum):
    """What verl divides the sum over tokens by."""

    TOKEN_SUM = "token-sum"
    TOKEN_MEAN = "token-mean"
    SEQ_MEAN_TOKEN_SUM = "seq-mean-token-sum"


def export(samples: Samples, *, loss_agg_mode: str = LossAggMode.TOKEN_SUM, pad_token_id: int = 0) -> dict[str, Any]:
    """Return the arguments of `DataProto.from_dict`; see the module.

    Args:
        samples: a whole step, or with "token-sum" any part of one.
        loss_agg_mode: a word of `LossAggMode`, as `actor.loss_agg_mode` says in verl.
        pad_token_id: what stands in padding.
    """
    mode = _mode(loss_agg_mode)
    if mode is not LossAggMode.TOKEN_SUM:
        trained_in_step(samples)
    rows = trained_rows(samples)
    scale = _divisor(mode, [row.loss_mask for row in rows])
    unpadded = [
        {
            "prompt_ids": row.tokens[: row.prompt_length],
            "response_ids": row.tokens[row.prompt_length :],
            "response_mask": row.loss_mask[row.prompt_length :].astype(np.int64),
            "response_logprobs": row.logprobs[row.prompt_length :],
            "advantages": np.where(row.loss_mask[row.prompt_length :], row.weight * scale, 0.0).astype(np.float32),
            "uid": row.group,
            "execution": row.execution,
            "loss_agg_mode": mode.value,
        }
        for row in rows
    ]
    return from_records(unpadded, pad_token_id=pad_token_id)


def _mode(word: str) -> LossAggMode:
    try:
        return LossAggMode(word)
    except ValueError:
        raise InputError(f"loss_agg_mode {word!r}: choose one of {', '.join(LossAggMode)}") from None


def _divisor(mode: LossAggMode, masks: list[npt.NDArray[Any]]) -> int:
    counts = [int(np.count_nonzero(mask)) for mask in masks]
    if mode is LossAggMode.TOKEN_SUM:
        return 1
    return sum(counts) if mode is LossAggMode.TOKEN_MEAN else sum(count > 0 for count in counts)


def load(data: dict[str, Any], *, loss_agg_mode: str | None = None) -> Samples:
    """Return the samples behind a batch of verl; a row without `execution` is an execution of its own.

    Args:
        data: with the keys of `export`; `tensors` may be torch tensors on the CPU.
        loss_agg_mode: how verl takes the mean of it; None: as meta_info says, else "token-sum".
    """
    rows = records(data)
    mode = _mode(loss_agg_mode or (rows[0]["loss_agg_mode"] if rows else LossAggMode.TOKEN_SUM))
    divisor = max(_divisor(mode, [row["response_mask"] for row in rows]), 1)
    return samples_from(
        [
            read_row(
                index,
                tokens=np.concatenate((row["prompt_ids"], row["response_ids"])),
                loss_mask=np.concatenate((np.zeros(len(row["prompt_ids"]), np.int64), row["response_mask"])),
                logprobs=np.concatenate((np.zeros(len(row["prompt_ids"])), row["response_logprobs"])),
                weights=np.concatenate((np.zeros(len(row["prompt_ids"])), row["advantages"])) / divisor,
                execution=row.get("execution"),
                group=row.get("uid", ""),
            )
            for index, row in enumerate(rows)
        ]
    )


def records(data: dict[str, Any]) -> list[dict[str, Any]]:
    """Return one dict a row, without padding."""
    tensors = {name: np.asarray(values) for name, values in data["tensors"].items()}
    mode = (data.get("meta_info") or {}).get("loss_agg_mode", LossAggMode.TOKEN_SUM.value)
    present = tensors["attention_mask"] != 0
    width = tensors["prompts"].shape[1]
    found = []
    for index, known in enumerate(present):
        prompt, response = known[:width], known[width:]
        row = {
            "prompt_ids": tensors["prompts"][index][prompt],
            "response_ids": tensors["responses"][index][response],
            "response_mask": tensors["response_mask"][index][response],
            "response_logprobs": tensors["rollout_log_probs"][index][response],
            "advantages": tensors["advantages"][index][response],
        }
        named = {name: str(values[index]) for name, values in (data.get("non_tensors") or {}).items()}
        found.append({**row, **{name: named[name] for name in ("uid", "execution") if name in named}})
        found[-1]["loss_agg_mode"] = str(mode)
    return found


def from_records(rows: list[dict[str, Any]], *, pad_token_id: int = 0) -> dict[str, Any]:
    """Return a padded batch of rows."""
    columns = {name: [np.asarray(row[name]) for row in rows] for name in _UNPADDED}
    prompts = padded(columns["prompt_ids"], Side.LEFT, pad_token_id, np.int64)
    responses = padded(columns["response_ids"], Side.RIGHT, pad_token_id, np.int64)
    attention = np.hstack(
        (padding_mask(columns["prompt_ids"], Side.LEFT), padding_mask(columns["response_ids"], Side.RIGHT))
    )
    return {
        "tensors": {
            "prompts": prompts,
            "responses": responses,
            "input_ids": np.hstack((prompts, responses)),
            "attention_mask": attention,
            "position_ids": np.maximum(np.cumsum(attention, axis=1) - 1, 0),
            "response_mask": padded(columns["response_mask"], Side.RIGHT, 0, np.int64),
            "rollout_log_probs": padded(columns["response_logprobs"], Side.RIGHT, 0, np.float32),
            "advantages": padded(columns["advantages"], Side.RIGHT, 0, np.float32),
        },
        "non_tensors": {name: np.array([row[name] for row in rows], object) for name in ("uid", "execution")},
        "meta_info": {"loss_agg_mode": rows[0]["loss_agg_mode"]} if rows else {},
    }


_UNPADDED = ("prompt_ids", "response_ids", "response_mask", "response_logprobs", "advantages")
