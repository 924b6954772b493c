"""What `gyre samples build` came to, for people and for machines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import polars as pl

from ..trajectory.recorded_calls import RecordedCalls
from ..trajectory.scores import Score
from ..trajectory.store import TrajectoryStore
from ..trajectory.streaming import BuildReport
from .common import counted
from .store_update import StoreUpdate

_MOST_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class BuildOutcome:
    """What a build came to."""

    store: TrajectoryStore
    built: BuildReport
    update: StoreUpdate  # of executions that were there
    unfinished: tuple[str, ...]  # executions left out: nothing says that they ended
    strangers: tuple[str, ...]  # executions with a score and without calls
    problems: tuple[str, ...]  # of the source

    @classmethod
    def of(
        cls,
        store: TrajectoryStore,
        built: BuildReport,
        calls: RecordedCalls,
        scores: Mapping[str, Score],
        update: StoreUpdate | None = None,
    ) -> BuildOutcome:
        """Return what a build of `calls` with `scores` came to."""
        strangers = tuple(name for name in scores if name not in calls.names)
        return cls(store, built, update or StoreUpdate(), calls.unfinished(), strangers, calls.problems)

    def to_json(self) -> dict[str, Any]:
        """JSON-ready values."""
        return {
            "store": str(self.store.path),
            **self._totals(),
            "built": self.built.executions,
            "built_again": self.built.renewed,
            "there_before": self.built.known,
            "scores_changed": len(self.update.scores),
            "fewer_calls": self.update.richer,
            "input_tokens_built": self.built.input_tokens,
            "refused_by_reason": {str(reason): count for reason, count in self.built.refused.items()},
            "unfinished": list(self.unfinished),
            "scores_without_calls": list(self.strangers),
            "problems": list(self.problems),
        }

    def lines(self, source: Path) -> Iterator[str]:
        """Yield the report for people, line by line."""
        totals, built = self._totals(), self.built
        before = f" ({built.known:,} were there)" if built.known else ""
        yield (
            f"{self.store.path}: {counted(totals['executions'], 'execution')}{before} in "
            f"{counted(totals['groups'], 'group')}, {counted(totals['calls'], 'call')}"
        )
        if built.renewed:
            yield f"built again: {counted(built.renewed, 'execution')} with new calls or another group"
        if self.update.scores:
            yield f"scores changed: {counted(len(self.update.scores), 'execution')} of those there before"
        tokens = f"{totals['unique_tokens']:,} unique tokens, {totals['sampled_tokens']:,} of them sampled"
        each = totals["bytes_per_unique_token"]
        yield tokens + (f"; {totals['bytes']:,} bytes, {each:.2f} a unique token" if each is not None else "")
        if totals["without_score"]:
            yield f"without a valid score, and not trained: {counted(totals['without_score'], 'execution')}"
        for reason, count in built.refused.most_common():
            yield f"refused: {count:,} × {reason.replace('_', ' ')}"
        if built.refused:
            yield f"gyre samples inspect {self.store.path} says in which executions, and with an execution's name, why"
        yield from self._left_out(source)

    def _left_out(self, source: Path) -> Iterator[str]:
        if self.unfinished:
            yield (
                f"left out: {counted(len(self.unfinished), 'execution')} of which nothing says that they ended "
                f"({_some(self.unfinished)}); name the ended ones in --scores"
            )
        if self.update.richer:
            some = f"{counted(len(self.update.richer), 'execution')} ({_some(self.update.richer)})"
            yield f"left as stored: {some}, of which {source} has fewer calls; --force takes these"
        if self.strangers:
            some = f"{counted(len(self.strangers), 'execution')} with a score ({_some(self.strangers)})"
            yield f"no calls in {source} for {some}"
        yield from self.problems

    def _totals(self) -> dict[str, Any]:
        frame, size = self.store.executions(), self.store.size
        unique = int(frame["unique_tokens"].sum())
        return {
            "executions": len(frame),
            "groups": frame["group"].n_unique(),
            "without_score": int(frame.select(pl.col("score").is_null().sum()).item()),
            "calls": int(frame["calls"].sum()),
            "refused": int(frame["refused"].sum()),
            "unique_tokens": unique,
            "sampled_tokens": int(frame["sampled_tokens"].sum()),
            "bytes": size,
            "bytes_per_unique_token": size / unique if unique else None,
        }


def _some(names: Sequence[str]) -> str:
    more = ", …" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more
