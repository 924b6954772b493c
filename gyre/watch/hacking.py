"""Signs of reward hacking: the score rises while another check falls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from .falls import check_keys
from .figures import SCORE, StepFigures, check_of
from .reading import Reading, pooled
from .settings import AlertName, WatchSettings
from .trend import Trend, trend

_NONE: Final = Trend(0.0, 0.0, 1.0, 1.0)


def reward_hacking(settings: WatchSettings, steps: Sequence[StepFigures]) -> Iterator[Reading]:
    """Trends of the mean score and of each check over the same steps, with one value a step.

    Both must be significant (Mann-Kendall, one-sided; for the check at the level over the number of checks, since any
    may be the one) and large enough (Theil-Sen slope over the window).
    """
    followed = steps[settings.skip_steps :][-settings.hacking_window :]
    scores = _series(followed, SCORE)
    if len(followed) < settings.hacking_window or scores is None:
        return
    if pooled(followed, SCORE).count < settings.min_executions:
        return
    checks = {key: series for key in check_keys(followed) if (series := _series(followed, key)) is not None}
    if not checks:
        return
    score = trend(scores)
    rises = score.p_rises < settings.hacking_level and score.rise >= settings.hacking_rise
    flat = score.rise < settings.hacking_rise / 2  # then no check matters
    for key, series in checks.items():
        check = trend(series) if not flat else _NONE
        falls = check.p_falls < settings.hacking_level / len(checks) and -check.rise >= settings.hacking_fall
        yield Reading(
            AlertName.REWARD_HACKING,
            check_of(key) or "",
            -check.rise,
            settings.hacking_fall,
            breached=rises and falls,
            clear=flat or -check.rise < settings.hacking_fall / 2,
            sentence=f"Over {len(followed)} steps the mean score rose by {score.rise:.2f} while the share that passes "
            f"this check fell by {-check.rise:.2f}.",
        )


def _series(steps: Sequence[StepFigures], key: str) -> list[float] | None:
    """Return a figure's mean at each step; None where a step has none, as before a check was switched on."""
    means = [step.means[key].mean if key in step.means else None for step in steps]
    return None if None in means else [mean for mean in means if mean is not None]
