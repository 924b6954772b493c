"""What is watched of micro-steps: sums, so that those of a step add up in whatever order they come."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Self

import torch
from torch import Tensor

from gyre.trajectory.objectives import Batch, Metrics


@dataclass(frozen=True, slots=True)
class Difference:
    """|behaviour - recomputed| of trained tokens' log-probabilities: the importance weights are as good as this."""

    tokens: int = 0
    total: float = 0.0
    largest: float = 0.0

    def __add__(self, other: Difference) -> Difference:
        """Both sets of tokens together."""
        return Difference(self.tokens + other.tokens, self.total + other.total, max(self.largest, other.largest))

    @property
    def mean(self) -> float:
        """Mean over the tokens; 0 without any."""
        return self.total / self.tokens if self.tokens else 0.0


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of some micro-steps of one step. `loss` is of weights for a step of one execution: see `Trainer`."""

    loss: float = 0.0
    tokens: int = 0
    clipped: int = 0
    ratio_sum: float = 0.0
    kl_sum: float = 0.0
    reference_kl_sum: float = 0.0
    differences: Mapping[int, Difference] = field(default_factory=dict)  # by the version that sampled the tokens

    @classmethod
    def of(cls, loss: Tensor, metrics: Metrics, logprobs: Tensor, batch: Batch) -> Self:
        """Read what an objective said; `logprobs` (T,) are recomputed, those of `batch` the engines'."""
        return cls(
            loss=float(loss.detach()),
            tokens=int(metrics.tokens),
            clipped=int(metrics.clipped),
            ratio_sum=float(metrics.ratio_sum),
            kl_sum=float(metrics.kl_sum),
            reference_kl_sum=float(metrics.reference_kl_sum),
            differences=_differences(logprobs.detach(), batch),
        )

    def __add__(self, other: Figures) -> Figures:
        """Figures of both together."""
        versions = sorted({*self.differences, *other.differences})
        none = Difference()
        return Figures(
            self.loss + other.loss,
            self.tokens + other.tokens,
            self.clipped + other.clipped,
            self.ratio_sum + other.ratio_sum,
            self.kl_sum + other.kl_sum,
            self.reference_kl_sum + other.reference_kl_sum,
            {v: self.differences.get(v, none) + other.differences.get(v, none) for v in versions},
        )

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote.

        Raises:
            ValueError, TypeError, KeyError: it is something else.
        """
        values = json.loads(text)
        differences = {int(version): Difference(**one) for version, one in values.pop("differences").items()}
        return cls(**values, differences=differences)

    def metrics(self, version: int, executions: int) -> dict[str, float]:
        """Return what an update says of itself.

        Args:
            version: of the weights that were trained.
            executions: E, that have a trained token.
        """
        tokens = max(self.tokens, 1)
        said = {
            "loss": self.loss / max(executions, 1),
            "kl": self.kl_sum / tokens,
            "reference_kl": self.reference_kl_sum / tokens,
            "clip_fraction": self.clipped / tokens,
            "mean_ratio": self.ratio_sum / tokens,
            "trained_tokens": float(self.tokens),
        }
        for sampled, difference in self.differences.items():
            lag = f"lag{version - sampled}" if sampled >= 0 else "unknown"
            said[f"logprob_difference_mean_{lag}"] = difference.mean
            said[f"logprob_difference_max_{lag}"] = difference.largest
        return said


def _differences(logprobs: Tensor, batch: Batch) -> dict[int, Difference]:
    gap = (logprobs - batch.logprobs).abs()
    found = {}
    for version in batch.versions[batch.loss_mask].unique().tolist():
        held = gap[batch.loss_mask & (batch.versions == version)]
        found[int(version)] = Difference(len(held), float(held.double().sum()), float(held.max()))
    return found


def shared_figures(figures: Figures | None, source: int, group: object) -> Figures:
    """Return what rank `source` of a group has, on all its ranks."""
    held = [figures]
    torch.distributed.broadcast_object_list(held, source, group=group)  # type: ignore[arg-type]
    assert held[0] is not None
    return held[0]
