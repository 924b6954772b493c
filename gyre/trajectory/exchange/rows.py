"""Rows that are handed over: what all formats have in common, on the way out and on the way in."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ...arrays import BoolArray, Float32Array, FloatArray, Int32Array, Int64Array, common_prefix, row_starts
from ...errors import InputError
from ..samples import SampleExecutions, Samples

TOLERANCE: Final = 1e-5
"""Relative difference up to which two weights of one execution are the same number, rounded to float32."""


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """A selected path of t tokens, as `Samples` has it. The first token is never in the mask."""

    tokens: Int32Array  # t
    loss_mask: BoolArray  # t
    logprobs: Float32Array  # t, 0 outside the mask
    versions: Int32Array  # t, -1 outside the mask or where unknown
    weight: float  # A_e / (N_e * E), of each token in the mask
    execution: str
    group: str = ""
    score: float = math.nan
    role: int = 0  # index into list(Role)
    edges: Int64Array | None = None  # t; None: to be found from the tokens

    @property
    def prompt_length(self) -> int:
        """Tokens before the first that is trained, at least 1; the whole row where nothing is."""
        return int(self.loss_mask.argmax()) or len(self.tokens)


def all_rows(samples: Samples) -> list[Row]:
    """Return all rows, as views into the samples."""
    table = samples.executions
    rows = []
    for index, execution in enumerate(samples.row_execution.tolist()):
        at = samples.row(index)
        rows.append(
            Row(
                tokens=samples.tokens[at],
                loss_mask=samples.loss_mask[at],
                logprobs=samples.logprobs[at],
                versions=samples.versions[at],
                weight=float(table.token_weight[execution]),
                execution=table.execution[execution],
                group=table.group[execution],
                score=float(table.score[execution]),
                role=int(samples.row_role[index]),
                edges=samples.edges[at],
            )
        )
    return rows


def trained_rows(samples: Samples) -> list[Row]:
    """Return the rows with a trained token. The others change no gradient, and trainers stumble over them.

    Raises:
        InputError: there is none.
    """
    rows = [row for row in all_rows(samples) if row.loss_mask.any()]
    if not rows:
        raise InputError("the samples have no trained token; there is nothing to export")
    return rows


def trained_in_step(samples: Samples) -> int:
    """Return the trained tokens of all executions, the sum of N_e.

    Trainers that take a mean over tokens or executions need a whole step for it: of a part they would take the mean of
    that part.

    Raises:
        InputError: the samples are a part of a step.
    """
    table = samples.executions
    whole = np.array_equal(samples.trained_tokens(), table.trained_tokens)
    if not whole or table.step_counted not in {None, table.counted}:
        raise InputError("the samples are a part of a step, and this trainer divides by counts of the step; join first")
    return int(table.trained_tokens.sum())


def read_row(
    index: int,
    *,
    tokens: npt.ArrayLike,
    loss_mask: npt.ArrayLike,
    logprobs: npt.ArrayLike | None,
    versions: npt.ArrayLike | None = None,
    weights: npt.ArrayLike,
    execution: str | None = None,
    **known: Any,
) -> Row:
    """Check row `index` of an import and return it.

    Args:
        index: place of the row, for messages.
        tokens: (t,) token ids.
        loss_mask: (t,) true or 1 where trained.
        logprobs: (t,) of the behaviour policy; None: not recorded, which becomes 0.
        versions: (t,) of the weights; None: unknown.
        weights: (t,) or one number; the coefficient of each trained token in the loss.
        execution: its name; None: the format does not say, and the row is an execution of its own.
        known: the other fields of `Row`, where the format has them.

    Raises:
        InputError: lengths differ, the first token is trained, or trained tokens differ in weight.
    """
    ids = _numbers(index, "tokens", tokens, np.int32)
    length = len(ids)
    mask = _numbers(index, "loss_mask", loss_mask, np.bool_)
    values = _numbers(index, "logprobs", np.zeros(length) if logprobs is None else logprobs, np.float32)
    labels = _numbers(index, "versions", np.full(length, -1) if versions is None else versions, np.int32)
    for name, array in (("loss_mask", mask), ("logprobs", values), ("versions", labels)):
        if len(array) != length:
            raise InputError(f"row {index}: {name} has {len(array)} entries for {length} tokens")
    if length and mask[0]:
        raise InputError(f"row {index}: its first token is in the loss mask, but nothing predicts it; mask it out")
    return Row(
        tokens=ids,
        loss_mask=mask,
        logprobs=np.where(mask, values, np.float32(0)),
        versions=np.where(mask, labels, np.int32(-1)),
        weight=_only_weight(index, weights, mask),
        execution=f"row-{index}" if execution is None else execution,
        **known,
    )


def _numbers(index: int, name: str, values: npt.ArrayLike, kind: type[np.generic]) -> npt.NDArray[Any]:
    try:
        array = np.asarray(values)
        if array.ndim != 1 or (len(array) and array.dtype.kind not in "biuf"):
            raise InputError(f"row {index}: {name} must be one list of numbers")
        return array.astype(kind, copy=False)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"row {index}: {name} must be one list of numbers ({error})") from error


def _only_weight(index: int, weights: npt.ArrayLike, mask: BoolArray) -> float:
    trained = np.broadcast_to(np.asarray(weights, np.float64), mask.shape)[mask]
    if not len(trained):
        return 0.0
    if not np.allclose(trained, trained[0], rtol=TOLERANCE, atol=0):
        raise InputError(f"row {index}: its tokens differ in weight; samples have one weight an execution")
    return float(trained[0])


def samples_from(rows: Sequence[Row]) -> Samples:
    """Return the samples that consist of these rows, executions in the order of their first row.

    N_e and E are counted from the rows; A_e is what gives the weights with them.

    Raises:
        InputError: rows of one execution differ in weight.
    """
    place = {name: at for at, name in enumerate(dict.fromkeys(row.execution for row in rows))}
    row_execution = np.array([place[row.execution] for row in rows], np.int32)
    return Samples(
        row_start=row_starts(np.array([len(row.tokens) for row in rows], np.int64)),
        row_execution=row_execution,
        row_role=np.array([row.role for row in rows], np.int8),
        tokens=_joined([row.tokens for row in rows], np.int32),
        loss_mask=_joined([row.loss_mask for row in rows], np.bool_),
        logprobs=_joined([row.logprobs for row in rows], np.float32),
        versions=_joined([row.versions for row in rows], np.int32),
        edges=_joined(_edges(rows), np.int64),
        executions=_executions(rows, place),
        dropped={},
    )


def _joined(parts: Sequence[npt.NDArray[Any]], kind: type[np.generic]) -> npt.NDArray[Any]:
    return np.concatenate([np.zeros(0, kind), *parts])


def _executions(rows: Sequence[Row], place: dict[str, int]) -> SampleExecutions:
    trained = np.zeros(len(place), np.int64)
    weight = np.zeros(len(place))
    group, score = [""] * len(place), np.full(len(place), math.nan)
    for row in rows:
        at, count = place[row.execution], int(np.count_nonzero(row.loss_mask))
        group[at], score[at] = row.group, row.score
        if count and trained[at] and not math.isclose(row.weight, weight[at], rel_tol=TOLERANCE):
            raise InputError(f"execution {row.execution}: its rows differ in weight; samples have one an execution")
        if count and not trained[at]:
            weight[at] = row.weight
        trained[at] += count
    counted = int(np.count_nonzero(trained))
    advantage: FloatArray = weight * trained * counted
    return SampleExecutions(tuple(place), tuple(group), score, advantage, trained, weight, counted)


def _edges(rows: Sequence[Row]) -> list[Int64Array]:
    """Number tokens so that two of an execution are equal where their whole prefixes are, as far as tokens tell."""
    earlier: dict[str, list[tuple[Int32Array, Int64Array]]] = defaultdict(list)
    unused: dict[str, int] = defaultdict(int)
    found = []
    for row in rows:
        if row.edges is not None:
            found.append(row.edges)
            continue
        edges = np.empty(len(row.tokens), np.int64)
        shared = 0
        for tokens, numbers in earlier[row.execution]:
            common = common_prefix(row.tokens, tokens)
            if common > shared:
                shared = common
                edges[:common] = numbers[:common]
        first = unused[row.execution]
        edges[shared:] = np.arange(first, first + len(edges) - shared)
        unused[row.execution] = first + len(edges) - shared
        earlier[row.execution].append((row.tokens, edges))
        found.append(edges)
    return found
