"""Conditions that hold a figure against what it was before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from .alert import Alert
from .clustered import Clustered, difference_in_errors
from .figures import COMPLETION, SCORE, TOOL_CALLS, StepFigures, check_of
from .reading import Key, Reading, percent, pooled
from .settings import AlertName, WatchSettings

_CLEAR: Final = 1.1  # times the threshold, a share of the best, at which a collapse is over


@dataclass(frozen=True, slots=True)
class Best:
    """The highest mean over a window so far, and the window's last step."""

    mean: float
    values: Clustered
    step: int


class Falls:
    """Remembers the best that figures were; must be shown every step."""

    def __init__(self, settings: WatchSettings) -> None:
        self.settings = settings
        self._best: dict[str, Best] = {}

    def note(self, steps: Sequence[StepFigures]) -> None:
        """Take in the window that ended before the present one began: the two share no step."""
        width = self.settings.window
        if len(steps) < self.settings.skip_steps + 2 * width:
            return
        window = steps[-2 * width : -width]
        for key in (COMPLETION, SCORE, TOOL_CALLS):
            values = pooled(window, key)
            mean = values.mean
            if mean is not None and self._enough(values) and (key not in self._best or mean > self._best[key].mean):
                self._best[key] = Best(mean, values, window[-1].step)

    def forgetting(self, steps: Sequence[StepFigures]) -> Iterator[Reading]:
        """Completion or score below its best."""
        drop = self.settings.forgetting_drop
        for key, what in ((COMPLETION, "completion rate"), (SCORE, "mean score")):
            found = self._since_best(steps, key)
            if found is None:
                continue
            best, now, errors = found
            fall = best.mean - now
            yield Reading(
                AlertName.FORGETTING,
                what,
                fall,
                drop,
                breached=fall >= drop and errors >= self.settings.errors,
                clear=fall < drop / 2,
                sentence=f"The {what} fell from its best, {best.mean:.2f} at step {best.step}, to {now:.2f}.",
                reference=best.mean,
            )

    def tool_calls_collapse(self, steps: Sequence[StepFigures]) -> Iterator[Reading]:
        """Mean tool calls of an execution, as a share of the most that they were."""
        found, low = self._since_best(steps, TOOL_CALLS), self.settings.tool_calls_low
        if found is None or found[0].mean <= 0.0:
            return
        best, now, errors = found
        share = now / best.mean
        yield Reading(
            AlertName.TOOL_CALLS_COLLAPSE,
            "",
            share,
            low,
            breached=share < low and errors >= self.settings.errors,
            clear=share >= low * _CLEAR,
            sentence=f"Executions make {now:.3g} tool calls on average; up to step {best.step} it was {best.mean:.3g}.",
            reference=best.mean,
        )

    def rule_falls(self, steps: Sequence[StepFigures], active: Mapping[Key, Alert]) -> Iterator[Reading]:
        """Pass rate of each check against that of some steps before, or before its alert began."""
        settings = self.settings
        window = steps[-settings.window :]
        earlier = steps[settings.skip_steps : -settings.rule_fall_steps][-settings.window :]
        for key in check_keys(window):
            check, before, now = check_of(key) or "", pooled(earlier, key), pooled(window, key)
            alert = active.get((AlertName.RULE_FALLS, check))
            level = before.mean if alert is None else alert.reference
            if level is None or now.mean is None or not self._enough(now) or not (alert or self._enough(before)):
                continue
            fall = level - now.mean
            yield Reading(
                AlertName.RULE_FALLS,
                check,
                fall,
                settings.rule_fall,
                breached=fall >= settings.rule_fall and difference_in_errors(before, now) >= settings.errors,
                clear=fall < settings.rule_fall / 2,
                sentence=f"The share that passes fell from {percent(level)} to {percent(now.mean)}.",
                reference=level,
            )

    def _since_best(self, steps: Sequence[StepFigures], key: str) -> tuple[Best, float, float] | None:
        """Return the best, the mean now, and the fall in standard errors."""
        best, now = self._best.get(key), pooled(steps[-self.settings.window :], key)
        if best is None or now.mean is None or not self._enough(now):
            return None
        return best, now.mean, difference_in_errors(best.values, now)

    def _enough(self, values: Clustered) -> bool:
        return values.count >= self.settings.min_executions and values.groups >= self.settings.min_groups


def check_keys(steps: Sequence[StepFigures]) -> list[str]:
    """Return the keys of all checks in these steps."""
    return list(dict.fromkeys(key for step in steps for key in step.means if check_of(key) is not None))
