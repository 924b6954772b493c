"""Which executions were trained, against those that were offered: by length, with cancelled ones as censored."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl
from pydantic import Field

from ..arrays import BoolArray, FloatArray
from ..outcome import Outcome
from .figures_base import Figures
from .record import RunRecord
from .time_unit import TimeUnit, time_unit

_OPEN: Final = "unfinished"
_FEWEST: Final = 10  # executions that make a distribution


class LengthClass(Figures):
    """Executions of at least `low` and less than `high`."""

    low: float  # seconds, or tokens
    high: float
    offered: int  # all that started
    trained: int
    not_trained: dict[str, int]  # by reason; with `trained` they sum to `offered`


class Cancelled(Figures):
    """Executions that were cancelled for one reason. What they were spared is estimated, see `length_selection`."""

    reason: str
    executions: int
    groups: int
    ran_s: float
    spared_s: float | None


class LengthSelection(Figures):
    """Trained against offered executions. Means and medians are in seconds, from start to end.

    `mean_s` and `median_s` are of all that started, by Kaplan and Meier 1958: those that were cancelled, lost or still
    ran are censored, they would have been longer. The mean is up to the longest time that was seen; `is_restricted`
    says that some may have been longer. None where there is too little.
    """

    started: int
    censored: int
    mean_s: float | None
    is_restricted: bool
    median_s: float | None
    trained: int
    trained_mean_s: float | None
    trained_median_s: float | None
    by_seconds: list[LengthClass]
    by_tokens: list[LengthClass]
    tokens_unknown: int  # started, and ended without a word on what was sampled
    cancelled: list[Cancelled] = Field(default_factory=list)

    @property
    def bias(self) -> float | None:
        """Mean length of what was trained over that of all, less 1; None where either is not known."""
        return self.trained_mean_s / self.mean_s - 1.0 if self.mean_s and self.trained_mean_s is not None else None

    @property
    def sentence(self) -> str:
        """The bias in words; empty where it is not known."""
        bias = self.bias
        if bias is None or self.mean_s is None or self.trained_mean_s is None:
            return ""
        least = "at least " if self.is_restricted else ""
        size = f"{100 * abs(bias):.0f} % {'shorter' if bias < 0 else 'longer'}" if abs(bias) >= 0.005 else "as long"
        unit = time_unit([self.trained_mean_s, self.mean_s], most=TimeUnit.MINUTES)
        trained, offered = (f"{unit.of(mean_s):.1f} {unit.symbol}" for mean_s in (self.trained_mean_s, self.mean_s))
        return (
            f"Trained executions ran for {trained} on average; all that started would have run for {least}{offered} "
            f"(Kaplan–Meier, {self.censored:,} of {self.started:,} censored): what is trained is {size}."
        )


@dataclass(frozen=True, slots=True)
class _Survival:
    """Share of executions that run for longer than a time, right of each of `times_s` (K, ascending)."""

    times_s: FloatArray
    shares: FloatArray

    def area_s(self, from_s: float = 0.0) -> float:
        """Integral from `from_s` to the longest time."""
        edges = np.concatenate(([0.0], self.times_s))
        heights = np.concatenate(([1.0], self.shares))[:-1]
        return float((heights * np.clip(edges[1:] - np.maximum(edges[:-1], from_s), 0.0, None)).sum())

    def at(self, time_s: float) -> float:
        """Share that runs for longer than `time_s`."""
        place = int(np.searchsorted(self.times_s, time_s, side="right"))
        return 1.0 if place == 0 else float(self.shares[place - 1])

    def remaining_s(self, ran_s: float) -> float:
        """Mean time that one which ran for `ran_s` had still to run; 0 where none was seen to run longer."""
        share = self.at(ran_s)
        return self.area_s(ran_s) / share if share > 0.0 else 0.0

    @property
    def median_s(self) -> float | None:
        """Least time that at most half exceed; None where more than half are censored beyond it."""
        below = np.flatnonzero(self.shares <= 0.5)
        return float(self.times_s[below[0]]) if len(below) else None


def _survival(seconds: FloatArray, censored: BoolArray) -> _Survival:
    from scipy import stats  # a second to import, which few callers need

    found = stats.ecdf(stats.CensoredData.right_censored(seconds, censored)).sf
    return _Survival(np.asarray(found.quantiles, np.float64), np.asarray(found.probabilities, np.float64))


def length_selection(record: RunRecord) -> LengthSelection:
    """Return how the lengths of trained executions differ from those of all that started.

    What cancelled executions were spared is the mean remaining time, by the same estimate, of one that had run as long.
    Censoring is taken to say nothing of an execution's own length. That holds for lost ones and for groups that end
    with their N-th member, up to what members of one group have in common.
    """
    rows = _started(record)
    seconds, ended = rows["seconds"].to_numpy(), rows["ended"].to_numpy()
    survival = _survival(seconds, ~ended) if ended.sum() >= _FEWEST else None
    trained = rows.filter(pl.col("trained"))
    trained_s = trained["seconds"]
    known = rows.filter(pl.col("tokens") > 0)
    return LengthSelection(
        started=rows.height,
        censored=int((~ended).sum()),
        mean_s=None if survival is None else survival.area_s(),
        is_restricted=survival is not None and float(survival.shares[-1]) > 0.0,
        median_s=None if survival is None else survival.median_s,
        trained=trained.height,
        trained_mean_s=None if trained_s.is_empty() else float(trained_s.to_numpy().mean()),
        trained_median_s=None if trained_s.is_empty() else float(np.median(trained_s.to_numpy())),
        by_seconds=_classes(rows, "seconds"),
        by_tokens=_classes(known, "tokens"),
        tokens_unknown=rows.height - known.height,
        cancelled=_cancelled(record, survival),
    )


def _started(record: RunRecord) -> pl.DataFrame:
    """Return executions that started: seconds, tokens, whether they ended by themselves, were trained, else why not."""
    consumed = record.groups.filter(pl.col("state") == "consumed")["group"]
    own_end = pl.col("outcome").is_not_null() & (pl.col("outcome") != Outcome.CANCELLED.value)
    trained = pl.col("lost_reason").is_null() & pl.col("group").is_in(consumed.implode())
    end_s = pl.col("ended_s").fill_null(record.end_s)
    return record.executions.filter(pl.col("started_s").is_not_null()).select(
        "group",
        "tokens",
        seconds=(end_s - pl.col("started_s")).clip(lower_bound=0.0),
        ended=own_end & (pl.col("ended_s") == pl.col("finished_s")).fill_null(False),
        trained=trained,
        why=pl.when(trained).then(None).otherwise(pl.col("lost_reason").fill_null(_OPEN)),
    )


def _classes(rows: pl.DataFrame, column: str) -> list[LengthClass]:
    """Return the rows by floor(log2(column)), shortest first, without a gap between the first and the last class."""
    if rows.is_empty():
        return []
    octaves = rows[column].cast(pl.Float64).clip(lower_bound=1.0).log(2).floor().cast(pl.Int64)
    counts = rows.with_columns(octave=octaves).group_by("octave", "trained", "why").len()
    least, most = int(octaves.min()), int(octaves.max())  # type: ignore[arg-type]
    classes = []
    for octave in range(least, most + 1):
        own = counts.filter(pl.col("octave") == octave).sort("len", "why", descending=[True, False])
        lost = own.filter(~pl.col("trained"))
        classes.append(
            LengthClass(
                low=0.0 if octave == 0 else math.ldexp(1.0, octave),
                high=math.ldexp(1.0, octave + 1),
                offered=int(own["len"].sum()),
                trained=int(own.filter(pl.col("trained"))["len"].sum()),
                not_trained=dict(lost.select("why", "len").iter_rows()),
            )
        )
    return classes


def _cancelled(record: RunRecord, survival: _Survival | None) -> list[Cancelled]:
    """Return what was cancelled while it ran or before it started, by reason."""
    rows = record.executions.filter(
        pl.col("ended_s").is_not_null(),
        pl.col("finished_s").is_null() | (pl.col("finished_s") > pl.col("ended_s")),
        pl.col("lost_reason").is_not_null() | pl.col("outcome").is_null(),
    )
    dropped = record.groups.select("group", "dropped_reason")
    rows = rows.join(dropped, on="group", how="left", maintain_order="left").with_columns(
        reason=pl.col("lost_reason").fill_null(pl.col("dropped_reason")),
        ran_s=(pl.col("ended_s") - pl.col("started_s")).fill_null(0.0),
    )
    found = []
    for (reason,), part in rows.group_by("reason", maintain_order=True):
        ran_s = part["ran_s"].to_list()
        found.append(
            Cancelled(
                reason=str(reason),
                executions=part.height,
                groups=part["group"].n_unique(),
                ran_s=sum(ran_s),
                spared_s=None if survival is None else sum(map(survival.remaining_s, ran_s)),
            )
        )
    return sorted(found, key=lambda one: -one.executions)
