"""Samples of scored executions: from recorded calls to a tree that waits in the storage of groups."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

from gyre.buffer.storage import GroupStorage
from gyre.scoring.evaluation import Evaluation
from gyre.trajectory.building import TreeBuilder
from gyre.trajectory.call import CallRecord
from gyre.trajectory.execution import ExecutionRecord
from gyre.trajectory.selection import Selection, select
from gyre.trajectory.store.part import Item
from gyre.trajectory.tree import Refusal, Tree

from .gateway import Gateway
from .ports import Assignment, Ended, SamplesLostError
from .worker import Worker


class StoredSamples:
    """Keeps each scored execution's tree, with its score, in a `GroupStorage` until its group is let go.

    The samples themselves are made from it for each update: their weights depend on the whole step.
    """

    def __init__(self, storage: GroupStorage, gateway: Gateway, selection: Selection, *, harness: str = "") -> None:
        """`storage` must not be used by others meanwhile, except through `group`; close it after this."""
        self._storage = storage
        self._gateway = gateway
        self._selection = selection
        self._harness = harness
        self._worker = Worker("samples")
        self.close = self._worker.close

    async def keep(self, assignment: Assignment, ended: Ended, evaluation: Evaluation) -> tuple[int, ...]:
        """See `SampleSink.keep`."""
        group = assignment.group
        stored = await self._worker.run(lambda: self._stored(group, ended.calls))
        if stored is None:
            calls = await self._gateway.calls(ended.calls)
            if len(calls) < ended.recorded:
                raise SamplesLostError(f"of {ended.recorded} calls that were recorded {len(calls)} are left")
            record = ExecutionRecord(
                execution=ended.calls,
                group=str(group),
                score=evaluation.score,
                harness=self._harness,
                task=assignment.task.name,
                outcome=ended.outcome.value,
            )
            stored = await asyncio.to_thread(_tree, record, calls)
            await self._worker.run(lambda: self._put(group, (record, stored)))
        paths = await asyncio.to_thread(select, stored, self._selection)
        return tuple(paths.length.tolist())

    async def forget(self, group: int) -> None:
        """See `SampleSink.forget`."""
        await self._worker.run(lambda: self._storage.release(group))

    async def recover(self, live: Collection[int]) -> None:
        """See `SampleSink.recover`."""
        await self._worker.run(lambda: self._storage.keep_only(frozenset(live)))

    async def group(self, group: int) -> list[Item]:
        """Return the executions of a group with their trees, for a trainer.

        Raises:
            InputError: there is nothing of the group, or something of it is damaged.
        """
        return await self._worker.run(lambda: list(self._storage.get(group)))

    def _put(self, group: int, item: Item) -> None:
        self._storage.put(group, [item])
        self._storage.flush()

    def _stored(self, group: int, execution: str) -> Tree | None:
        if group not in self._storage or execution not in self._storage.executions(group):
            return None
        return next(tree for record, tree in self._storage.get(group) if record.execution == execution)


def _tree(record: ExecutionRecord, calls: Sequence[CallRecord | Refusal]) -> Tree:
    builder = TreeBuilder(record.execution, record.harness)
    for call in calls:
        if isinstance(call, Refusal):
            builder.refused.append(call)
        else:
            builder.add(call)
    return builder.close()
