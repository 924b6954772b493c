"""What has become of stored executions since, by their calls and scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Self

from ..trajectory.recorded_calls import RecordedCalls
from ..trajectory.scores import Score
from ..trajectory.store import TrajectoryStore


@dataclass(slots=True)
class StoreUpdate:
    """Executions of a store that are not as their source has them."""

    scores: dict[str, float | None] = field(default_factory=dict)  # another score
    outdated: list[str] = field(default_factory=list)  # more calls, or another group
    richer: list[str] = field(default_factory=list)  # fewer calls: what the store has would be lost

    @classmethod
    def of(
        cls, store: TrajectoryStore, calls: RecordedCalls, scores: Mapping[str, Score], heed: Callable[[], object]
    ) -> Self:
        """Compare a store with its source; `heed` is called after each execution, to end it by an exception.

        A score of the store is outdated if `scores` has another, or it has none and the calls' record has one.
        """
        frame = store.executions().select("execution", "group", "score", "calls", "refused")
        stored = {row[0]: row[1:] for row in frame.iter_rows()}
        update = cls()
        for record in calls.executions():
            if record.execution not in stored:
                continue
            heed()
            group, score, kept, refused = stored[record.execution]
            if record.score != score and (score is None or record.execution in scores):
                update.scores[record.execution] = record.score
            more = calls.call_count(record.execution) - kept - refused
            if more < 0:
                update.richer.append(record.execution)
            elif record.group != group or (more and _has_grown(calls, record.execution, kept, refused)):
                update.outdated.append(record.execution)
        return update


def _has_grown(calls: RecordedCalls, execution: str, kept: int, refused: int) -> bool:
    tree = calls.tree(execution)  # calls without output are neither in a tree nor refused
    return (len(tree.calls), len(tree.refused)) != (kept, refused)
