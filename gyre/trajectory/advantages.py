"""Group-relative advantages of executions."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import numpy as np
import numpy.typing as npt

from ..arrays import FloatArray
from ..errors import InputError

STD_EPSILON: Final = 1e-6
"""Added to the standard deviation, as verl does."""


class Baseline(StrEnum):
    """What is subtracted from an execution's score, over the n executions of its group that have one."""

    MEAN = "mean"  # the group's mean: Dr. GRPO, Liu et al. 2025, arXiv:2503.20783
    MEAN_STD = "mean_std"  # its mean, then divided by its standard deviation: GRPO, Shao et al. 2024, arXiv:2402.03300
    LEAVE_ONE_OUT = "leave_one_out"  # the others' mean: RLOO, Ahmadian et al. 2024, arXiv:2402.14740
    NONE = "none"  # nothing: the score itself


def group_advantages(
    group: Sequence[str] | npt.NDArray[np.integer], score: FloatArray, baseline: Baseline
) -> FloatArray:
    """Return the advantage of each execution over its group's baseline, (E,).

    The standard deviation of `MEAN_STD` is the sample's (n - 1), as `torch.std` gives it to TRL and verl; the paper
    leaves that open.

    Args:
        group: (E,) of each execution, a name or a code.
        score: (E,) NaN where missing: such an execution counts for no baseline and gets 0.
        baseline: what is subtracted. Except with `NONE`, all advantages of a group are 0 where its scores are equal or
            fewer than two.

    Raises:
        InputError: a score is infinite.
    """
    if np.isinf(score).any():
        raise InputError(f"the score of execution {int(np.isinf(score).argmax())} of {len(score)} is infinite")
    advantage = np.zeros(len(score))
    scored = np.flatnonzero(~np.isnan(score))
    if baseline is Baseline.NONE:
        advantage[scored] = score[scored]
        return advantage
    _, codes = np.unique(np.asarray(group)[scored], return_inverse=True)
    order = np.argsort(codes, kind="stable")
    for rows in np.split(scored[order], np.flatnonzero(np.diff(codes[order])) + 1):
        advantage[rows] = _relative(score[rows], baseline)
    return advantage


def _relative(score: FloatArray, baseline: Baseline) -> FloatArray:
    """Advantages in one group; all have scores."""
    count = len(score)
    if count < 2 or np.all(score == score[0]):
        return np.zeros(count)
    above: FloatArray = score - score.mean()
    if baseline is Baseline.MEAN_STD:
        return np.asarray(above / (score.std(ddof=1) + STD_EPSILON), np.float64)
    if baseline is Baseline.LEAVE_ONE_OUT:  # r - (sum - r) / (n - 1) = (r - mean) n / (n - 1)
        return np.asarray(above * (count / (count - 1)), np.float64)
    return above
