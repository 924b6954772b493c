"""The store that `gyre samples build` makes or goes on with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ..errors import InputError
from ..trajectory.recorded_calls import RecordedCalls
from ..trajectory.scores import Score
from ..trajectory.store import TrajectoryStore
from ..trajectory.store.manifest import MANIFEST
from ..trajectory.streaming import build_store, rebuild_store
from .build_outcome import BuildOutcome
from .build_progress import BuildProgress
from .common import counted
from .interrupt import CommandStoppedError, Interrupt
from .store_update import StoreUpdate


@dataclass(frozen=True, slots=True)
class Target:
    """Where the store goes, and what is done with one that is there."""

    out: Path
    resume: bool
    force: bool

    def check(self, source: Path) -> None:
        """Refuse, before any work is done, what the build would refuse after it.

        Raises:
            InputError: `resume` and `force` are both given, `source` lies in the store's folder, or there is a store
                and neither says what to do with it.
        """
        if self.resume and self.force:
            raise InputError("--resume goes on with a store and --force replaces it; give one of them")
        if source.resolve().is_relative_to(self.out.resolve()):
            raise InputError(f"{source}: lies in {self.out}, the store's folder; give another folder with --out")
        if self.is_there and not (self.resume or self.force):
            raise InputError(f"{self.out}: holds a store already; go on with it by --resume, or replace it by --force")

    @property
    def replaces(self) -> bool:
        """Whether what is there is to be replaced."""
        return self.force and self.out.is_dir() and any(self.out.iterdir())

    @property
    def is_there(self) -> bool:
        """Whether there is a store."""
        return (self.out / MANIFEST).exists()

    @contextmanager
    def opened(self) -> Iterator[TrajectoryStore]:
        """Open the store to be filled, or make it; one that holds nothing at the end is removed again.

        Raises:
            InputError: it cannot be read, or there is something else.
        """
        if self.is_there:
            yield TrajectoryStore.open(self.out)
            return
        had_folder = self.out.exists()
        store = TrajectoryStore.create(self.out)
        try:
            yield store
        except BaseException:
            with suppress(InputError, OSError):  # another process may have begun to fill it
                with store.writing():
                    if len(store):
                        raise
                    (self.out / MANIFEST).unlink()
                if not had_folder:
                    self.out.rmdir()
            raise


def build_into(
    target: Target, source: Path, scores: Mapping[str, Score], interrupt: Interrupt, *, quiet: bool
) -> BuildOutcome:
    """Build the store of the executions in `source`; `target` has been checked.

    Raises:
        InputError: there is nothing to build, the store cannot be made or read, or as the readers of calls.
        CommandStoppedError: the user asked to stop; groups that were complete by then stay in the store.
    """
    with BuildProgress(interrupt, quiet=quiet) as progress:
        try:
            calls = RecordedCalls(source, scores, on_record=progress.read)
        except CommandStoppedError:
            raise CommandStoppedError(f"stopped while {source} was being read; nothing was stored") from None
        with calls:
            if not calls.executions():
                raise InputError(f"{source}: no execution has ended; give the ended ones with --scores")
            replaces = target.replaces
            try:
                return (_rebuilt if replaces else _filled)(target, calls, scores, progress)
            except CommandStoppedError:
                raise CommandStoppedError(_what_stands(target, replaces=replaces)) from None


def _rebuilt(
    target: Target, calls: RecordedCalls, scores: Mapping[str, Score], progress: BuildProgress
) -> BuildOutcome:
    store, built = rebuild_store(calls, target.out, on_progress=progress.built)
    return BuildOutcome.of(store, built, calls, scores)


def _filled(target: Target, calls: RecordedCalls, scores: Mapping[str, Score], progress: BuildProgress) -> BuildOutcome:
    with target.opened() as store, store.writing():
        update = StoreUpdate.of(store, calls, scores, progress.heed)
        if update.scores:
            store.set_scores(update.scores)
        built = build_store(calls, store, renew=update.outdated, on_progress=progress.built)
    return BuildOutcome.of(store, built, calls, scores, update)


def _what_stands(target: Target, *, replaces: bool) -> str:
    if replaces:
        return f"stopped; {target.out} is as it was"
    if not target.is_there:
        return "stopped; nothing was stored"
    held = counted(len(TrajectoryStore.open(target.out)), "execution")
    return (
        f"stopped with {held} of complete groups in {target.out}; the group in work is lost, --resume goes on with it"
    )
