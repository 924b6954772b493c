"""How often something may happen."""

from __future__ import annotations


class TokenBucket:
    """Lets `burst` things happen at once and `per_s` a second in the long run. It has no clock: times are given."""

    def __init__(self, per_s: float, burst: int) -> None:
        """Start full."""
        self._per_s = per_s
        self._burst = burst
        self._level = float(burst)
        self._at_s = 0.0

    def take(self, now_s: float) -> bool:
        """Tell whether one more may happen at `now_s`, and count it if so. Time never runs back."""
        self._level = min(self._burst, self._level + max(0.0, now_s - self._at_s) * self._per_s)
        self._at_s = now_s
        if self._level < 1:
            return False
        self._level -= 1
        return True
