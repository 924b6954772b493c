"""The store that `gyre samples build` makes: where it goes, how far it is, and what was built."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import polars as pl
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ..errors import InputError
from ..trajectory.recorded_calls import RecordedCalls
from ..trajectory.store import TrajectoryStore
from ..trajectory.store.manifest import MANIFEST
from ..trajectory.streaming import BuildReport, build_store
from .interrupt import Interrupt

_MOST_NAMED: Final = 3


def open_target(out: Path, *, resume: bool, force: bool) -> TrajectoryStore:
    """Open or create the store to be filled.

    Raises:
        InputError: there is something already, and neither `resume` nor `force` says what to do with it.
    """
    there = (out / MANIFEST).exists()
    if there and resume:
        return TrajectoryStore.open(out)
    if there and not force:
        raise InputError(f"{out}: holds a store already; go on with it by --resume, or replace it by --force")
    if there:
        TrajectoryStore.open(out)  # what cannot be read as a store is not removed as one
        shutil.rmtree(out)
    return TrajectoryStore.create(out)


class _StoppedError(Exception):
    """The build was asked to stop."""


def fill(store: TrajectoryStore, calls: RecordedCalls, interrupt: Interrupt, *, quiet: bool) -> BuildReport | None:
    """Build the store, with a progress bar on stderr where that is a terminal; None: it was asked to stop.

    Groups that were complete by then stay in the store.
    """
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as progress:
        bar = progress.add_task("executions", total=len(calls.executions()))

        def advanced(done: int, _: int) -> None:
            progress.update(bar, completed=done)
            if interrupt.asked:
                raise _StoppedError

        try:
            return build_store(calls, store, on_progress=advanced)
        except _StoppedError:
            return None


@dataclass(frozen=True, slots=True)
class BuildOutcome:
    """What a build came to."""

    store: TrajectoryStore
    built: BuildReport
    unfinished: tuple[str, ...]  # executions left out: nothing says that they ended
    strangers: tuple[str, ...]  # executions with a score and without calls
    problems: tuple[str, ...]  # of the source

    def to_json(self) -> dict[str, Any]:
        """JSON-ready values."""
        return {
            "store": str(self.store.path),
            **self._totals(),
            "built": self.built.executions,
            "there_before": self.built.known,
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
            f"{self.store.path}: {totals['executions']:,} executions{before} in {totals['groups']:,} groups, "
            f"{totals['calls']:,} calls"
        )
        tokens = f"{totals['unique_tokens']:,} unique tokens, {totals['sampled_tokens']:,} of them sampled"
        each = totals["bytes_per_unique_token"]
        yield tokens + (f"; {totals['bytes']:,} bytes, {each:.2f} a unique token" if each is not None else "")
        if totals["without_score"]:
            yield f"{totals['without_score']:,} executions have no valid score and will not be trained"
        for reason, count in built.refused.most_common():
            yield f"refused: {count:,} × {reason.replace('_', ' ')}"
        if built.refused:
            yield f"gyre samples inspect {self.store.path} says in which executions, and with an execution's name, why"
        yield from self._left_out(source)

    def _left_out(self, source: Path) -> Iterator[str]:
        if self.unfinished:
            yield (
                f"left out: {len(self.unfinished):,} executions of which nothing says that they ended "
                f"({_some(self.unfinished)}); name the ended ones in --scores"
            )
        if self.strangers:
            yield f"no calls in {source} for {len(self.strangers):,} executions with a score ({_some(self.strangers)})"
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


def _some(names: tuple[str, ...]) -> str:
    more = ", …" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more
