"""What is known of one step's health."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from .clustered import Clustered

COMPLETION: Final = "completion"  # share of ended executions that completed
SCORE: Final = "score"  # of valid evaluations
TOOL_CALLS: Final = "tool_calls"  # of finished executions
TOKENS: Final = "tokens"  # sampled, of finished executions
VALID: Final = "valid"  # share of evaluations that were valid
_CHECK: Final = "check:"


def check_key(check: str) -> str:
    """Return under which key a check's pass rate stands."""
    return _CHECK + check


def check_of(key: str) -> str | None:
    """Return the check whose pass rate stands under `key`; None for another figure."""
    return key.removeprefix(_CHECK) if key.startswith(_CHECK) else None


Means = dict[str, Clustered]  # by the keys above


@dataclass(slots=True)
class Flow:
    """What happened from one update to the next, whatever it was trained in. Counts of executions but where named."""

    means: Means = field(default_factory=dict)  # over executions that ended, or were scored, in this time
    dispatched: int = 0
    added: int = 0  # of those dispatched: into a group that had lost some
    outcomes: Counter[str] = field(default_factory=Counter)  # how they ended; `lost` and `cancelled` too
    restarted: int = 0  # had ended before, and began again
    lost: Counter[str] = field(default_factory=Counter)  # by reason
    cancelled: Counter[str] = field(default_factory=Counter)  # by reason
    failed: Counter[str] = field(default_factory=Counter)  # evaluations that were not valid, by reason
    late: int = 0  # evaluations that came when nobody waited for them any more
    dropped: Counter[str] = field(default_factory=Counter)  # groups, by reason
    dropped_alike: int = 0  # of these: with at least two scores, all the same
    switches: int = 0  # of cells to another role
    switch_s: float = 0.0  # which those took, in all
    offered_octaves: Counter[int] = field(default_factory=Counter)  # ended executions by floor(log2(seconds run))

    def __add__(self, other: Flow) -> Flow:
        """What happened in both times."""
        return Flow(
            means=added_means(self.means, other.means),
            dispatched=self.dispatched + other.dispatched,
            added=self.added + other.added,
            outcomes=self.outcomes + other.outcomes,
            restarted=self.restarted + other.restarted,
            lost=self.lost + other.lost,
            cancelled=self.cancelled + other.cancelled,
            failed=self.failed + other.failed,
            late=self.late + other.late,
            dropped=self.dropped + other.dropped,
            dropped_alike=self.dropped_alike + other.dropped_alike,
            switches=self.switches + other.switches,
            switch_s=self.switch_s + other.switch_s,
            offered_octaves=self.offered_octaves + other.offered_octaves,
        )


def added_means(one: Means, other: Means) -> Means:
    """Return the means over the values of both."""
    return {key: one.get(key, Clustered()) + other.get(key, Clustered()) for key in dict.fromkeys((*one, *other))}


@dataclass(slots=True)
class Alike:
    """Groups by what their scores say; a group needs two scores to say anything."""

    groups: int = 0  # with at least two scores
    zero: int = 0  # all 0
    one: int = 0  # all 1
    other: int = 0  # all the same, another value

    @property
    def alike(self) -> int:
        """Groups whose scores are all the same: nothing is learnt from them."""
        return self.zero + self.one + self.other


@dataclass(frozen=True, slots=True)
class StepFigures:
    """One update: the groups that it was made from, and what happened since the update before.

    `means`, `outcomes` and what follows are of all executions of the groups that the step trained, those included that
    were lost on the way; `flow` is by the time at which things happened.
    """

    step: int  # the update made version `step + 1`
    time_s: float
    groups: int
    executions: int
    means: Means
    outcomes: Counter[str]
    scores: Alike
    staleness_mean: float | None  # step - version at dispatch, over groups
    staleness_max: int | None
    token_staleness_mean: float | None  # step - version that sampled a token, over tokens of valid members
    token_staleness_max: int | None
    metrics: dict[str, float]
    trained_octaves: Counter[int]  # executions with a valid score by floor(log2(seconds run))
    flow: Flow

    @property
    def zero_variance_share(self) -> float | None:
        """Share of groups whose scores are all the same, over those trained and those dropped for it."""
        groups = self.scores.groups + self.flow.dropped_alike
        return (self.scores.alike + self.flow.dropped_alike) / groups if groups else None

    @property
    def checks(self) -> dict[str, Clustered]:
        """Pass rates by check."""
        return {check: mean for key, mean in self.means.items() if (check := check_of(key)) is not None}
