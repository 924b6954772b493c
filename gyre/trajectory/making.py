"""From a step's executions and their trees to samples."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ..arrays import row_starts
from ..errors import InputError
from .advantages import Baseline, group_advantages
from .execution import ExecutionRecord
from .expand import expand
from .samples import TOKEN_FIELDS, SampleExecutions, Samples
from .selection import Selection, select
from .tree import Tree

NO_SCORE: Final = "no valid score"
NO_ADVANTAGE: Final = "no advantage was given"
NOTHING_TRAINABLE: Final = "no trainable token"


class SampleBuilder:
    """Takes a step's executions one by one; a tree is not needed any more once it is added.

    A group must be complete in one builder, for its baseline. Steps that do not fit into memory are built group by
    group: see `Samples.weighted`.
    """

    def __init__(
        self, selection: Selection, baseline: Baseline, *, advantages: Mapping[str, float] | None = None
    ) -> None:
        """Begin a step; `advantages`, by execution, take the place of scores and baseline where they are given."""
        self._selection = selection
        self._baseline = baseline
        self._advantages = advantages
        self._records: dict[str, ExecutionRecord] = {}
        self._dropped: dict[str, str] = {}
        self._trained: dict[str, int] = {}  # tokens of each execution that has some
        self._row_length: list[npt.NDArray[np.int64]] = [np.zeros(0, np.int64)]
        self._row_execution: list[npt.NDArray[np.int32]] = [np.zeros(0, np.int32)]
        self._row_role: list[npt.NDArray[np.int8]] = [np.zeros(0, np.int8)]
        self._token_fields: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in TOKEN_FIELDS}

    def add(self, record: ExecutionRecord, tree: Tree) -> None:
        """Select, expand and keep the rows of an execution.

        Raises:
            InputError: the tree is another execution's, the execution is here already, its score or advantage is
                infinite, or a selection of the user's own is at fault.
        """
        name = record.execution
        if tree.execution != name:
            raise InputError(f"execution {name}: the tree given with it is that of execution {tree.execution}")
        if name in self._records:
            raise InputError(f"execution {name} is in the step twice; give each execution once")
        reason = self._untrained(record)
        self._records[name] = record
        if reason:
            self._dropped[name] = reason
            return
        paths = select(tree, self._selection)
        rows = expand(tree, paths)
        trained = int(np.count_nonzero(rows.loss_mask))
        if not trained:
            self._dropped[name] = NOTHING_TRAINABLE
            return
        self._row_execution.append(np.full(len(paths), len(self._trained), np.int32))
        self._trained[name] = trained
        self._row_length.append(np.diff(rows.row_start))
        self._row_role.append(tree.leaf_role[rows.leaf])
        for field, parts in self._token_fields.items():
            parts.append(getattr(rows, field))

    def _untrained(self, record: ExecutionRecord) -> str:
        """Why the execution cannot be trained, as far as that is known before its tree; "" where it can."""
        if self._advantages is not None:
            value, missing = self._advantages.get(record.execution), NO_ADVANTAGE
        else:
            value, missing = record.score, NO_SCORE
        if value is not None and math.isinf(value):
            raise InputError(f"execution {record.execution}: its score or advantage is {value}; give a finite number")
        return missing if value is None or math.isnan(value) else ""

    def close(self) -> Samples:
        """Return the step's samples. The builder is empty afterwards."""
        fields = {name: _joined(self._token_fields.pop(name), kind) for name, kind in TOKEN_FIELDS.items()}
        executions = self._executions()
        return Samples(
            row_start=row_starts(np.concatenate(self._row_length)),
            row_execution=np.concatenate(self._row_execution),
            row_role=np.concatenate(self._row_role),
            executions=executions.weighted(executions.counted),
            dropped=self._dropped,
            **fields,
        )

    def _executions(self) -> SampleExecutions:
        """Executions with rows; the baseline is over all that have a score."""
        records = list(self._records.values())
        score = np.array([math.nan if record.score is None else record.score for record in records], np.float64)
        if self._advantages is not None:
            advantage = np.array([self._advantages.get(record.execution, 0.0) for record in records], np.float64)
        else:
            advantage = group_advantages([record.group for record in records], score, self._baseline)
        kept = np.array([row for row, record in enumerate(records) if record.execution in self._trained], np.int64)
        return SampleExecutions(
            execution=tuple(self._trained),
            group=tuple(records[row].group for row in kept),
            score=score[kept],
            advantage=advantage[kept],
            trained_tokens=np.array(list(self._trained.values()), np.int64),
            token_weight=np.zeros(len(kept)),
        )


def _joined(parts: list[npt.NDArray[Any]], kind: type[np.generic]) -> npt.NDArray[Any]:
    return np.concatenate([np.zeros(0, kind), *parts])


def make_samples(
    items: Iterable[tuple[ExecutionRecord, Tree]],
    selection: Selection,
    baseline: Baseline,
    *,
    advantages: Mapping[str, float] | None = None,
) -> Samples:
    """Return the samples of a step: selected paths, each token's weight A_e / (N_e * E).

    N_e is the execution's tokens in the mask, E the executions that have some. An execution without a valid score (or,
    where `advantages` are given, without one) or without a trainable token is in `dropped`.

    Raises:
        InputError: see `SampleBuilder.add`.
    """
    builder = SampleBuilder(selection, baseline, advantages=advantages)
    for record, tree in items:
        builder.add(record, tree)
    return builder.close()
