"""SkyRL: one `GeneratorOutput`, with a row as one step of a step-wise trajectory.

Seen in skyrl 0.4.0: `skyrl/train/generators/base.py` (`GeneratorOutput`), `train/trainer.py`
(`compute_advantages_and_returns`, `_normalize_advantages`), `train/utils/trainer_utils.py` (what it checks) and
`backends/skyrl_train/utils/ppo_utils.py` (`apply_loss_reduction_to_advantages_minibatch`).

Fields; lists have an entry a row, and rows stand group by group, execution by execution, as SkyRL demands:
    prompt_token_ids: list of int each; response_ids: list of int each, from the first trained token on
    loss_masks: list of int each, as long as the response, 1 where trained
    rollout_logprobs: list of float each, as long as the response, 0 where not trained
    rewards: float each, A_e * N / (N_e * E); N is the trained tokens of the step
    trajectory_ids: `TrajectoryID` each: instance_id is the group, repetition_id the number of the execution in it
    is_last_step: bool each, true at an execution's last row
    stop_reasons, rollout_metrics: None
SkyRL pads on the left and aligns responses to the right by itself.

Loss: of each trajectory the estimator sees only the last step's reward, and its advantage goes to all tokens of the
trajectory's rows; `token_mean` divides by the trained tokens of the mini-batch, N, then sums.

Settings: `generator.step_wise_trajectories=true`, `trainer.algorithm.loss_reduction="token_mean"`,
`trainer.policy_mini_batch_size` equal to `train_batch_size`, `advantage_batch_normalize=false`, and an advantage
estimator that returns what it gets (the bundled ones subtract a baseline once more)::

    @register_advantage_estimator("given")
    def given(token_level_rewards, response_mask, **_):
        advantages = token_level_rewards.sum(-1, keepdim=True) * response_mask
        return advantages, advantages
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..samples import Samples
from .rows import Row, read_row, samples_from, trained_in_step, trained_rows

SUMMARY = "SkyRL: a GeneratorOutput of step-wise trajectories"
LOST = "names of executions (they become group_number), scores, versions, edges, roles, order of rows"

_PER_ROW = ("prompt_token_ids", "response_ids", "rewards", "loss_masks", "rollout_logprobs", "is_last_step")


@dataclass(frozen=True, slots=True)
class TrajectoryID:
    """Stands for SkyRL's class of that name, which needs SkyRL to import."""

    instance_id: str
    repetition_id: int

    def to_string(self) -> str:
        """Both in one."""
        return f"{self.instance_id}_{self.repetition_id}"


def export(samples: Samples) -> dict[str, Any]:
    """Return the output of a generator; see the module."""
    total = trained_in_step(samples)
    rows, identities = _by_group(trained_rows(samples))
    following = [*identities[1:], None]
    return {
        "prompt_token_ids": [row.tokens[: row.prompt_length].tolist() for row in rows],
        "response_ids": [row.tokens[row.prompt_length :].tolist() for row in rows],
        "rewards": [row.weight * total for row in rows],
        "loss_masks": [row.loss_mask[row.prompt_length :].astype(np.int64).tolist() for row in rows],
        "stop_reasons": None,
        "rollout_metrics": None,
        "rollout_logprobs": [row.logprobs[row.prompt_length :].tolist() for row in rows],
        "trajectory_ids": identities,
        "is_last_step": [one != after for one, after in zip(identities, following, strict=True)],
    }


def _by_group(rows: list[Row]) -> tuple[list[Row], list[TrajectoryID]]:
    """Rows in SkyRL's order, with what each belongs to."""
    members: dict[str, dict[str, list[Row]]] = defaultdict(dict)
    for row in rows:
        members[row.group].setdefault(row.execution, []).append(row)
    ordered, identities = [], []
    for group, executions in members.items():
        for number, steps in enumerate(executions.values()):
            ordered += steps
            identities += [TrajectoryID(group, number)] * len(steps)
    return ordered, identities


def load(data: dict[str, Any]) -> Samples:
    """Return the samples behind a generator's output.

    A reward is a number a row, or a number a token: then they are summed, as outcome estimators do. Of a trajectory's
    rows the last one's reward counts. Without trajectory_ids each row is an execution of its own.
    """
    rewards = [float(np.sum(reward)) for reward in data["rewards"]]
    identities = data.get("trajectory_ids") or [TrajectoryID(f"row-{index}", 0) for index in range(len(rewards))]
    last = dict(zip((identity.to_string() for identity in identities), rewards, strict=True))
    total = max(sum(int(np.count_nonzero(mask)) for mask in data["loss_masks"]), 1)
    logprobs = data.get("rollout_logprobs") or [None] * len(rewards)
    rows = []
    for index, identity in enumerate(identities):
        before = [0] * len(data["prompt_token_ids"][index])
        rows.append(
            read_row(
                index,
                tokens=[*data["prompt_token_ids"][index], *data["response_ids"][index]],
                loss_mask=[*before, *data["loss_masks"][index]],
                logprobs=None if logprobs[index] is None else [*before, *logprobs[index]],
                weights=last[identity.to_string()] / total,
                execution=identity.to_string(),
                group=identity.instance_id,
            )
        )
    return samples_from(rows)


def records(data: dict[str, Any]) -> list[dict[str, Any]]:
    """Return one dict a row."""
    return [
        {**{name: data[name][index] for name in _PER_ROW}, **asdict(identity)}
        for index, identity in enumerate(data["trajectory_ids"])
    ]


def from_records(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the generator's output of these rows."""
    return {
        **{name: [row[name] for row in rows] for name in _PER_ROW},
        "stop_reasons": None,
        "rollout_metrics": None,
        "trajectory_ids": [TrajectoryID(row["instance_id"], row["repetition_id"]) for row in rows],
    }
