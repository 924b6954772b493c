"""Executions and groups as the watch needs them: those that may still be trained, and no more."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from ..outcome import Outcome
from ..scoring.partial import PLACEHOLDER_SCORE, Treatment, treatment_of
from .clustered import Clustered
from .figures import COMPLETION, SCORE, TOKENS, TOOL_CALLS, VALID, Alike, Means, check_key

LOST: Final = "lost"
CANCELLED: Final = Outcome.CANCELLED.value
_PLACEHOLDERS: Final = {outcome.value for outcome in Outcome if treatment_of(outcome) is Treatment.PLACEHOLDER}
_ALIKE: Final = 1e-9  # scores nearer than this are the same: no advantage comes of them


@dataclass(slots=True)
class Member:
    """One execution so far."""

    group: int
    outcome: str | None = None  # of `Outcome`, or LOST; None while it is open
    started_s: float | None = None
    seconds: float | None = None  # that it ran, once it ended
    version_tokens: tuple[tuple[int, int], ...] = ()
    tool_calls: int | None = None  # None: it did not finish
    evaluations: int = 0
    valid: bool = False
    score: float | None = None
    checks: tuple[tuple[str, float], ...] = ()

    @property
    def counted_score(self) -> float | None:
        """The score that its group's baseline counts: that of a valid evaluation, or a placeholder's."""
        if self.valid:
            return self.score
        return PLACEHOLDER_SCORE if self.outcome in _PLACEHOLDERS else None

    @property
    def tokens(self) -> int:
        """Tokens that the policy sampled."""
        return sum(tokens for _, tokens in self.version_tokens)

    @property
    def octave(self) -> int | None:
        """floor(log2(seconds that it ran)); runs of under a second count as a second. None where it never ran."""
        return None if self.seconds is None else math.floor(math.log2(max(1.0, self.seconds)))


@dataclass(slots=True)
class GroupTally:
    """All that a step needs of a group that it trains."""

    version: int  # at its dispatch
    means: dict[str, tuple[int, float]]  # values and their sum, by figure
    outcomes: Counter[str]
    scores: list[float]
    tokens: dict[int, int]  # of valid members, by the version that sampled them
    octaves: Counter[int]  # valid members by `Member.octave`
    executions: int

    @classmethod
    def of(cls, version: int, members: Iterable[Member]) -> GroupTally:
        """Sum up a group's executions."""
        tally = cls(version, {}, Counter(), [], {}, Counter(), 0)
        for member in members:
            tally._take(member)
        return tally

    def _take(self, member: Member) -> None:
        self.executions += 1
        if member.outcome is not None:
            self.outcomes[member.outcome] += 1
        for key, count, total in values_of(member):
            before = self.means.get(key, (0, 0.0))
            self.means[key] = before[0] + count, before[1] + total
        score = member.counted_score
        if score is not None:
            self.scores.append(score)
        if member.valid:
            for version, tokens in member.version_tokens:
                self.tokens[version] = self.tokens.get(version, 0) + tokens
            if member.octave is not None:
                self.octaves[member.octave] += 1

    @property
    def is_alike(self) -> bool:
        """It has at least two scores, and they are all the same."""
        return len(self.scores) > 1 and max(self.scores) - min(self.scores) < _ALIKE

    def count_scores(self, into: Alike) -> None:
        """Add the group to the counts by what its scores say."""
        if len(self.scores) < 2:
            return
        into.groups += 1
        if not self.is_alike:
            return
        score = self.scores[0]
        if abs(score) < _ALIKE:
            into.zero += 1
        elif abs(score - 1.0) < _ALIKE:
            into.one += 1
        else:
            into.other += 1


def values_of(member: Member) -> list[tuple[str, int, float]]:
    """Return what an execution adds to each mean, as (figure, values, their sum).

    One that was cancelled ended for no reason of its own: it says nothing of completion.
    """
    values = []
    if member.outcome is not None and member.outcome != CANCELLED:
        values.append((COMPLETION, 1, float(member.outcome == Outcome.COMPLETED)))
    if member.tool_calls is not None:
        values += [(TOOL_CALLS, 1, float(member.tool_calls)), (TOKENS, 1, float(member.tokens))]
    if member.evaluations:
        values.append((VALID, member.evaluations, float(member.valid)))
    score = member.counted_score
    if score is not None:
        values.append((SCORE, 1, score))
    if member.valid:
        values += [(check_key(name), 1, passed) for name, passed in member.checks]
    return values


@dataclass(slots=True)
class ByGroup:
    """Values by figure and group, on the way to means over groups."""

    values: dict[str, dict[int, tuple[int, float]]] = field(default_factory=dict)

    def add(self, key: str, group: int, count: int, total: float) -> None:
        """Take `count` values of a group, `total` in sum."""
        groups = self.values.setdefault(key, {})
        before = groups.get(group, (0, 0.0))
        groups[group] = before[0] + count, before[1] + total

    def means(self) -> Means:
        """Return the mean of each figure, with groups as what is independent."""
        means: Means = {}
        for key, groups in self.values.items():
            mean = means[key] = Clustered()
            for count, total in groups.values():
                mean.add(count, total)
        return means
