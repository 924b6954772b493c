"""From recorded calls to a store of trees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ..building import TreeBuilder
from ..call import CallRecord
from ..execution import ExecutionRecord
from ..store import TrajectoryStore
from ..tree import Refusal, Tree


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

    executions: int = 0  # added
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
    source: CallSource, store: TrajectoryStore, *, on_progress: Callable[[int, int], object] | None = None
) -> BuildReport:
    """Add the trees of all ended executions to `store`, group by group, with one execution in memory at a time.

    Executions that are there already are left as they are, so an interrupted build goes on where it was: a kill loses
    no more than the group in work. `on_progress(done, of)` is called with numbers of executions after each.

    Raises:
        InputError: another writer is at work, or the system refuses.
    """
    report = BuildReport()
    groups: dict[str, list[ExecutionRecord]] = {}
    records = source.executions()
    for record in records:
        if record.execution in store:
            report.known += 1
        else:
            groups.setdefault(record.group, []).append(record)

    def built(group: Iterable[ExecutionRecord]) -> Iterator[tuple[ExecutionRecord, Tree]]:
        for record in group:
            tree = read_tree(source, record)
            report.add(record, tree)
            yield record, tree
            del tree  # before the next one is built
            if on_progress is not None:
                on_progress(report.known + report.executions, len(records))

    for group in groups.values():
        store.append(built(group))
    report.size = store.size
    return report


def read_tree(source: CallSource, record: ExecutionRecord) -> Tree:
    """Build the tree of an execution, with the calls that cannot be read among the refused."""
    builder = TreeBuilder(record.execution, record.harness)
    for call in source.read(record.execution):
        if isinstance(call, Refusal):
            builder.refused.append(call)
        else:
            builder.add(call)
    return builder.tree()
