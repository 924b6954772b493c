"""How the checks of an execution become its score.

With the shares p_i of the rules that apply, their weights w_i (ramps included) and W = sum of w_i:

    stage points  P_s   = sum of w_i p_i / W over the rules of stage s
    mean          score = sum over stages of min(P_s, cap of s); 1 where W = 0
    all           score = 1 if every rule with a weight has p_i >= pass_at_i, else 0
    caps          score = min(score, c_i) for each rule with p_i < pass_at_i; a gate has c_i = 0
    clamp         score = min(max(score, floor), ceiling)

A rule at strength f (its ramp) has the weight f w_i and caps at (1 - f) + f cap_i. A gate shuts from its first version.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ..evaluation import CheckStage


class Combine(StrEnum):
    """What the score is made of, before caps."""

    MEAN = "mean"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Term:
    """A rule that applies, and how far it passed."""

    name: str
    passed: float  # p_i
    weight: float  # w_i, its ramp included
    stage: CheckStage = CheckStage.OUTCOME
    limit: float = 1.0  # c_i, its ramp included; counts only while the rule fails
    pass_at: float = 1.0

    @property
    def fails(self) -> bool:
        """Whether the rule counts as failed."""
        return self.passed < self.pass_at


@dataclass(frozen=True, slots=True)
class Combination:
    """A score and how it came about."""

    score: float
    uncapped: float
    limited_by: tuple[str, ...]  # rules whose gate or cap lowered it, the lowest first


def combined(
    terms: Sequence[Term],
    how: Combine = Combine.MEAN,
    stage_caps: Mapping[CheckStage, float] | None = None,
    floor: float = 0.0,
    ceiling: float = 1.0,
) -> Combination:
    """Return the score that the checks make together, by the formula above."""
    base = _mean(terms, stage_caps or {}) if how is Combine.MEAN else _all(terms)
    caps = sorted((term.limit, term.name) for term in terms if term.fails and term.limit < base)
    capped = caps[0][0] if caps else base
    return Combination(min(max(capped, floor), ceiling), base, tuple(name for _, name in caps))


def _mean(terms: Sequence[Term], stage_caps: Mapping[CheckStage, float]) -> float:
    whole = math.fsum(term.weight for term in terms)
    if whole == 0:
        return 1.0
    points = {
        stage: math.fsum(term.weight * term.passed for term in terms if term.stage is stage) / whole
        for stage in CheckStage
    }
    return min(1.0, math.fsum(min(points[stage], stage_caps.get(stage, 1.0)) for stage in CheckStage))


def _all(terms: Sequence[Term]) -> float:
    return float(not any(term.fails for term in terms if term.weight > 0))
