"""What to watch beside the loss."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Metrics:
    """Sums over trained tokens, scalars without gradient: they add up over micro-steps and devices."""

    tokens: Tensor
    clipped: Tensor  # tokens that the clip keeps from moving the policy
    ratio_sum: Tensor  # of new over behaviour policy: of the token, or of its sequence where the objective says so
    kl_sum: Tensor  # r - 1 - log r of the token's ratio r: Schulman's k3, http://joschu.net/blog/kl-approx.html
    reference_kl_sum: Tensor  # the same towards the reference policy; 0 where there is none

    def __add__(self, other: Metrics) -> Metrics:
        """Metrics of both micro-steps together."""
        return Metrics(
            self.tokens + other.tokens,
            self.clipped + other.clipped,
            self.ratio_sum + other.ratio_sum,
            self.kl_sum + other.kl_sum,
            self.reference_kl_sum + other.reference_kl_sum,
        )

    @property
    def clip_fraction(self) -> float:
        """Share of trained tokens that are clipped; 0 without tokens."""
        return self._mean(self.clipped)

    @property
    def mean_ratio(self) -> float:
        """Mean ratio over trained tokens."""
        return self._mean(self.ratio_sum)

    @property
    def kl(self) -> float:
        """Estimated KL divergence of the behaviour policy from the new one, a token."""
        return self._mean(self.kl_sum)

    @property
    def reference_kl(self) -> float:
        """Estimated KL divergence of the new policy from the reference, a token."""
        return self._mean(self.reference_kl_sum)

    def _mean(self, total: Tensor) -> float:
        return float(total) / max(float(self.tokens), 1.0)
