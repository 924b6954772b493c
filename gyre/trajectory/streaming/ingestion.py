"""From recorded calls to a store of trees."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from ..building import TreeBuilder
from ..call import CallRecord
from ..execution import ExecutionRecord
from ..store import TrajectoryStore
from ..store.part import PART_TOKENS, Item, part_share
from ..tree import Refusal, Tree

COMMIT_S: Final = 2.0
"""Small groups are stored together, those of this many seconds: each change of a store waits for the disk."""

Progress = Callable[[int, int], object]


class CallSource(Protocol):
    """Where calls come from: a `CallLog`, several of them as `CallLogs`, or anything of this form."""

    def executions(self) -> Sequence[ExecutionRecord]:
        """Return the executions that ended."""
        ...

    def read(self, execution: str) -> Iterable[CallRecord | Refusal]:
        """Yield an execution's calls in any order, and in place of one that cannot be read, why."""
        ...


@dataclass(slots=True)
class BuildReport:
    """What went into a store."""

    executions: int = 0  # added, or built again
    renewed: int = 0  # of those: built again
    known: int = 0  # there already, and left as they are
    unscored: int = 0  # of those added, without a valid score: they cannot be trained before they have one
    calls: int = 0  # in the trees
    refused: Counter[str] = field(default_factory=Counter)  # calls that are not, by a word for the reason
    input_tokens: int = 0  # of the calls in the trees
    unique_tokens: int = 0
    sampled_tokens: int = 0
    duplicate_tokens: int = 0  # sampled again at an equal prefix
    size: int = 0  # bytes of the whole store

    def add(self, record: ExecutionRecord, tree: Tree) -> None:
        """Count an execution."""
        self.executions += 1
        self.unscored += record.score is None
        self.calls += len(tree.calls)
        self.refused.update(refusal.reason for refusal in tree.refused)
        self.input_tokens += int(tree.calls.input_tokens.sum())
        self.unique_tokens += tree.unique_tokens
        self.sampled_tokens += tree.sampled_tokens
        self.duplicate_tokens += tree.duplicate_tokens


def build_store(
    source: CallSource,
    store: TrajectoryStore,
    *,
    renew: Collection[str] = (),
    on_progress: Progress | None = None,
) -> BuildReport:
    """Add the trees of all ended executions to `store`, group by group, with one execution in memory at a time.

    Executions that are there already are left as they are, apart from those of `renew`: these are built again. So an
    interrupted build goes on where it was: an exception, also one of `on_progress`, loses no more than the group in
    work, a kill also the small groups of the last `COMMIT_S` seconds. No other process may write meanwhile.
    `on_progress(done, of)` is called with numbers of executions after each.

    Raises:
        InputError: another writer is at work, or the system refuses.
    """
    records = source.executions()
    with store.writing():
        known = set(store.executions()["execution"]) - set(renew)
        missing = [record for record in records if record.execution not in known]
        work = _Work(source, len(records), on_progress, BuildReport(known=len(records) - len(missing)))
        work.report.renewed = sum(record.execution in store for record in missing) if renew else 0
        waiting = _Waiting(store, replace=bool(renew))
        try:
            for group in by_group(missing):
                waiting.add(work.items(group))
        finally:
            waiting.write()
    work.report.size = store.size
    return work.report


def rebuild_store(
    source: CallSource, path: Path, *, on_progress: Progress | None = None
) -> tuple[TrajectoryStore, BuildReport]:
    """Put the trees of all ended executions in the place of all that the store in `path` holds.

    Until the last of them is built the store stays as it was; otherwise as `build_store`.

    Raises:
        InputError: as `TrajectoryStore.replace`.
    """
    records = source.executions()
    work = _Work(source, len(records), on_progress, BuildReport())
    store = TrajectoryStore.replace(path, (item for group in by_group(records) for item in work.items(group)))
    work.report.size = store.size
    return store, work.report


def by_group(records: Iterable[ExecutionRecord]) -> Iterable[list[ExecutionRecord]]:
    """Return the records of each group, groups and records in the order of their arrival."""
    groups: dict[str, list[ExecutionRecord]] = {}
    for record in records:
        groups.setdefault(record.group, []).append(record)
    return groups.values()


@dataclass(frozen=True, slots=True)
class _Work:
    """Builds trees, counts them, and says how far it is."""

    source: CallSource
    executions: int
    on_progress: Progress | None
    report: BuildReport

    def items(self, records: Iterable[ExecutionRecord]) -> Iterator[Item]:
        for record in records:
            tree = read_tree(self.source, record)
            self.report.add(record, tree)
            yield record, tree
            del tree  # before the next one is built
            if self.on_progress is not None:
                self.on_progress(self.report.known + self.report.executions, self.executions)


class _Waiting:
    """Complete small groups that are stored together."""

    def __init__(self, store: TrajectoryStore, *, replace: bool) -> None:
        self._store = store
        self._replace = replace
        self._items: list[Item] = []
        self._tokens = 0
        self._since_s = time.monotonic()

    def add(self, group: Iterator[Item]) -> None:
        """Take a group: a small one waits for others, a large one goes to the store while it is being built."""
        begun: deque[Item] = deque()
        tokens = 0
        while tokens <= PART_TOKENS:
            if (item := next(group, None)) is None:
                self._wait(begun, tokens)
                return
            begun.append(item)
            tokens += part_share(item[1].unique_tokens)
            del item  # it may be the last reference before the next one is built
        self.write()
        self._store.append(_all_of(begun, group), replace=self._replace)
        self._since_s = time.monotonic()

    def _wait(self, group: Iterable[Item], tokens: int) -> None:
        self._items += group
        self._tokens += tokens
        if self._tokens > PART_TOKENS or time.monotonic() - self._since_s > COMMIT_S:
            self.write()

    def write(self) -> None:
        """Store what waits."""
        items, self._items, self._tokens = self._items, [], 0
        if items:
            self._store.append(items, replace=self._replace)
        self._since_s = time.monotonic()


def _all_of(begun: deque[Item], rest: Iterator[Item]) -> Iterator[Item]:
    while begun:
        yield begun.popleft()
    yield from rest


def read_tree(source: CallSource, record: ExecutionRecord) -> Tree:
    """Build the tree of an execution, with the calls that cannot be read among the refused."""
    builder = TreeBuilder(record.execution, record.harness)
    for call in source.read(record.execution):
        if isinstance(call, Refusal):
            builder.refused.append(call)
        else:
            builder.add(call)
    return builder.close()
