"""Training samples: the selected paths of a step's executions, with masks and loss weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ..arrays import BoolArray, Float32Array, FloatArray, Int8Array, Int32Array, Int64Array, row_starts
from ..errors import InputError

TOKEN_FIELDS: Final[dict[str, type[np.generic]]] = {
    "tokens": np.int32,
    "loss_mask": np.bool_,
    "logprobs": np.float32,
    "versions": np.int32,
    "edges": np.int64,
}
"""Arrays of `PathRows` and `Samples` with a value a token."""


@dataclass(frozen=True, slots=True, eq=False)
class PathRows:
    """R selected paths of one execution, expanded: T tokens in CSR rows, in the order of selection.

    Entry t of a row speaks of predicting its token t from the tokens before it; token 0 has no predictor and is never
    in the mask.
    """

    row_start: Int64Array  # R + 1
    leaf: Int32Array  # R, index into the tree's leaves
    tokens: Int32Array  # T
    loss_mask: BoolArray  # T, trained here: sampled, and no earlier row has it
    logprobs: Float32Array  # T, 0 outside the mask
    versions: Int32Array  # T, -1 outside the mask or where unknown
    edges: Int64Array  # T, index of the token in the tree: two rows share a token at a prefix where these are equal


@dataclass(frozen=True, slots=True, eq=False)
class SampleExecutions:
    """The executions behind samples, E rows. Those that were dropped have no rows and are listed apart."""

    execution: tuple[str, ...]
    group: tuple[str, ...]
    score: FloatArray
    advantage: FloatArray
    trained_tokens: Int64Array  # N_e, 0 where nothing of it is trained: then it is not counted in E
    token_weight: FloatArray  # advantage / (N_e * E), of each of its trained tokens; 0 where N_e is 0
    step_counted: int | None = None  # E, as the weights were made; None: `counted`

    @property
    def mean_weight(self) -> FloatArray:
        """1 / (N_e * E), (E,), 0 where N_e is 0: the weight of a trained token in a mean that has no advantage."""
        counted = self.counted if self.step_counted is None else self.step_counted
        return np.where(self.trained_tokens > 0, 1.0 / np.maximum(self.trained_tokens * counted, 1), 0.0)

    @property
    def counted(self) -> int:
        """Executions with a trained token: E, where these are all executions of the step."""
        return int(np.count_nonzero(self.trained_tokens))

    def weighted(self, counted: int) -> SampleExecutions:
        """Return these executions with weights for a step of `counted` executions with a trained token."""
        weight = np.zeros(len(self.execution))
        some = self.trained_tokens > 0
        weight[some] = self.advantage[some] / (self.trained_tokens[some] * counted)
        return replace(self, token_weight=weight, step_counted=counted)


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """R rows of several executions, T tokens. The loss is minus the sum over tokens of weight times objective."""

    row_start: Int64Array  # R + 1
    row_execution: Int32Array  # R, index into executions
    row_role: Int8Array  # R, index into list(Role), of the path's leaf
    tokens: Int32Array  # T
    loss_mask: BoolArray  # T
    logprobs: Float32Array  # T, 0 outside the mask
    versions: Int32Array  # T, -1 outside the mask
    edges: Int64Array  # T, index of the token in its execution's tree
    executions: SampleExecutions
    dropped: dict[str, str]  # execution to reason, of those that are not trained

    @property
    def rows(self) -> int:
        """R."""
        return len(self.row_execution)

    def row(self, index: int) -> slice:
        """Return where row `index` stands in the arrays of tokens."""
        return slice(int(self.row_start[index]), int(self.row_start[index + 1]))

    def positions(self) -> Int32Array:
        """Return each token's position in its row, (T,)."""
        lengths = np.diff(self.row_start)
        return (np.arange(len(self.tokens)) - np.repeat(self.row_start[:-1], lengths)).astype(np.int32)

    def loss_weights(self) -> FloatArray:
        """Return A_e / (N_e * E) for each token in the mask and 0 for the others, (T,)."""
        per_row = self.executions.token_weight[self.row_execution]
        return np.repeat(per_row, np.diff(self.row_start)) * self.loss_mask

    def trained_tokens(self) -> Int64Array:
        """Return the tokens in the mask of these rows, of each execution."""
        before = row_starts(self.loss_mask.view(np.int8))
        in_row = before[self.row_start[1:]] - before[self.row_start[:-1]]
        counts = np.zeros(len(self.executions.execution), np.int64)
        np.add.at(counts, self.row_execution, in_row)
        return counts

    def weighted(self, counted: int) -> Samples:
        """Return these samples as a part of a step in which `counted` executions have a trained token.

        So groups can be made into samples one after the other, before E is known.
        """
        return replace(self, executions=self.executions.weighted(counted))

    def select_rows(self, rows: Int64Array) -> Samples:
        """Return some of the rows, in the given order, such as a micro-batch.

        Executions and weights stay: the losses of the parts of a split add up to the loss of the whole.
        """
        slices = [self.row(row) for row in rows]
        fields: dict[str, Any] = {name: _gathered(getattr(self, name), slices) for name in TOKEN_FIELDS}
        return replace(
            self,
            row_start=row_starts(np.diff(self.row_start)[rows]),
            row_execution=self.row_execution[rows],
            row_role=self.row_role[rows],
            **fields,
        )


def _gathered(values: npt.NDArray[Any], slices: Sequence[slice]) -> npt.NDArray[Any]:
    return np.concatenate([values[:0], *(values[at] for at in slices)])


def remask(samples: Samples, keep: BoolArray) -> Samples:
    """Return samples that train only what is in the mask and in `keep` (T,); N_e, E and the weights are counted anew.

    Raises:
        InputError: the samples lack rows of their executions (a part of a split): N_e cannot be counted.
    """
    if not np.array_equal(samples.trained_tokens(), samples.executions.trained_tokens):
        raise InputError("samples that are a part of a split cannot be masked again; mask the whole step, then split")
    mask = samples.loss_mask & keep
    masked = replace(
        samples,
        loss_mask=mask,
        logprobs=np.where(mask, samples.logprobs, np.float32(0)),
        versions=np.where(mask, samples.versions, np.int32(-1)),
    )
    executions = replace(samples.executions, trained_tokens=masked.trained_tokens())
    return replace(masked, executions=executions.weighted(executions.counted))


def concat(parts: Sequence[Samples]) -> Samples:
    """Join parts of one step.

    Parts of a split (they have the same executions) keep their weights. Parts of different executions, such as one for
    each group, become one step: E and the weights are counted anew; advantages stay as they are.

    Raises:
        InputError: there are no parts, or some have a part of their executions in common.
    """
    if not parts:
        raise InputError("there are no samples to join")
    tables = [part.executions for part in parts]
    if all(table.execution == tables[0].execution for table in tables):
        executions, first = tables[0], [0] * len(parts)
    else:
        executions, first = _joined(tables)
    shifted = [part.row_execution + np.int32(at) for part, at in zip(parts, first, strict=True)]
    return Samples(
        row_start=row_starts(np.concatenate([np.diff(part.row_start) for part in parts])),
        row_execution=np.concatenate(shifted),
        row_role=np.concatenate([part.row_role for part in parts]),
        executions=executions,
        dropped={execution: why for part in parts for execution, why in part.dropped.items()},
        **{name: np.concatenate([getattr(part, name) for part in parts]) for name in TOKEN_FIELDS},
    )


def _joined(tables: Sequence[SampleExecutions]) -> tuple[SampleExecutions, list[int]]:
    """One table of disjoint ones, and where each begins in it."""
    for one, other in combinations(tables, 2):
        both = set(one.execution) & set(other.execution)
        if both:
            raise InputError(f"execution {min(both)} is in several of the samples to join; join the parts of it first")
    executions = SampleExecutions(
        execution=tuple(name for table in tables for name in table.execution),
        group=tuple(name for table in tables for name in table.group),
        score=np.concatenate([table.score for table in tables]),
        advantage=np.concatenate([table.advantage for table in tables]),
        trained_tokens=np.concatenate([table.trained_tokens for table in tables]),
        token_weight=np.concatenate([table.token_weight for table in tables]),
    )
    first = row_starts(np.array([len(table.execution) for table in tables]))[:-1]
    return executions.weighted(executions.counted), first.tolist()
