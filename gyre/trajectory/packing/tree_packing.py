"""Rows of samples in micro-steps in which a shared prefix stands once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ...arrays import Int32Array, Int64Array, row_starts, row_sums
from ...errors import InputError
from ..samples import Samples
from .bins import first_fit_decreasing
from .budget import Oversize, row_lengths, row_name
from .columns import RowColumns, row_columns
from .micro_step import TreeMicroStep
from .prefixes import NO_FAULT, Structure, cut, shared_prefixes, walk
from .trained import Trained, train


@dataclass(frozen=True, slots=True, eq=False)
class TreePacking:
    """R rows in B micro-steps. Their arrays are made when asked for, one micro-step at a time."""

    samples: Samples
    token_budget: int
    step_start: Int64Array  # B + 1, CSR into rows
    rows: Int64Array  # R, rows of the samples; in a micro-step those of an execution together, depth first
    shared: Int64Array  # R, leading tokens that the row before in the micro-step has too
    step_tokens: Int64Array  # B

    def __len__(self) -> int:
        """Number of micro-steps B."""
        return len(self.step_tokens)

    def __iter__(self) -> Iterator[TreeMicroStep]:
        """Make one micro-step after the other."""
        return (self.micro_step(index) for index in range(len(self)))

    def micro_step(self, index: int) -> TreeMicroStep:
        """Make the arrays of micro-step `index`, from 0 to B - 1; O(tokens of its rows)."""
        held = slice(int(self.step_start[index]), int(self.step_start[index + 1]))
        rows = self.rows[held]
        columns = row_columns(self.samples, rows)
        tree = walk(columns.start, self.shared[held], int(self.step_tokens[index]))
        return _laid_out(rows, columns, tree)


def pack_trees(samples: Samples, token_budget: int, *, oversize: Oversize = "refuse") -> TreePacking:
    """Pack the R rows of `samples` into micro-steps of at most `token_budget` tokens, each shared prefix once.

    Rows share a token where execution and edge are equal. An execution whose tree is above the budget is cut between
    rows, depth first, as late as each cut can be; a prefix that is shared across a cut stands in both micro-steps, and
    is trained where the row that trains it is. Trees, or parts of them, are then packed first fit, largest first. Where
    fewer micro-steps come out of filling one after the other with all rows, whichever trees that cuts, these are taken.
    The same samples and budget give the same micro-steps. O(T + R log R) for T tokens.

    A token that several rows of a micro-step train at one edge (`dedup="segment"`) stands once, with the sum of the
    weights: exact for objectives of single tokens. Objectives of whole sequences refuse it; see `trained_twice`.

    Args:
        samples: rows of one or more tokens, with edges numbered depth first in each execution's tree.
        token_budget: most tokens of a micro-step, 1 to 2**31 - 1.
        oversize: what becomes of a row above the budget: "refuse", or "alone" in a micro-step of its own.

    Raises:
        InputError: the budget is out of range, a row has no token, edges are not depth first, or a row is above the
            budget and `oversize` is "refuse".
    """
    lengths = row_lengths(samples, token_budget, oversize)
    last_edge = samples.edges[samples.row_start[1:] - 1]
    rows = np.lexsort((last_edge, samples.row_execution)).astype(np.int64)
    shared = _shared(samples, rows, np.array([0, len(rows)], np.int64))
    sorted_rows = lengths[rows], samples.row_execution[rows], shared
    order, step_start = _whole_trees(*sorted_rows, token_budget)
    filled = cut(*sorted_rows, token_budget, True)
    if len(filled) < len(step_start):
        order, step_start = np.arange(len(rows)), filled
    rows = rows[order]
    shared = _shared(samples, rows, step_start)
    return TreePacking(samples, token_budget, step_start, rows, shared, row_sums(lengths[rows] - shared, step_start))


def _whole_trees(
    lengths: Int64Array, execution: Int32Array, shared: Int64Array, budget: int
) -> tuple[Int64Array, Int64Array]:
    """Pack trees, cut only where they are above the budget; returns the order of the rows, and offsets of micro-steps.

    Inside a micro-step parts stand in their order, so that two of one execution share there what they can.
    """
    parts = cut(lengths, execution, shared, budget, False)
    own = lengths - shared
    own[parts[:-1]] = lengths[parts[:-1]]  # nothing stands before a part
    bins = first_fit_decreasing(row_sums(own, parts), budget)
    part_rows = np.diff(parts)[bins.items]
    order = np.arange(len(lengths)) + np.repeat(parts[bins.items] - row_starts(part_rows)[:-1], part_rows)
    return order, row_starts(row_sums(part_rows, bins.start))


def _shared(samples: Samples, rows: Int64Array, step_start: Int64Array) -> Int64Array:
    shared = np.empty(len(rows), np.int64)
    fault = shared_prefixes(rows, step_start, samples.row_start, samples.row_execution, samples.edges, shared)
    if fault != NO_FAULT:
        raise InputError(
            f"{row_name(samples, fault)}: edges are not numbered depth first in the execution's tree; "
            "take them from gyre.trajectory.expand"
        )
    return shared


def _laid_out(rows: Int64Array, columns: RowColumns, tree: Structure) -> TreeMicroStep:
    """Fill the tree's T tokens from the P of its rows; what several rows train adds up."""
    trained = Trained.nothing(len(tree.source))
    sources = (columns.loss_mask, columns.logprobs, columns.versions)
    weights = (columns.weight, columns.mean_weight)
    twice = train(columns.start, tree.path_index, sources, weights, trained)
    return TreeMicroStep(
        tokens=columns.tokens[tree.source],
        positions=tree.positions,
        predictor=tree.predictor,
        loss_mask=trained.loss_mask,
        loss_weights=trained.loss_weights.astype(np.float32),
        mean_weights=trained.mean_weights.astype(np.float32),
        logprobs=trained.logprobs,
        versions=trained.versions,
        sequence=trained.sequence,
        rows=rows,
        row_execution=columns.execution,
        trained_twice=twice,
        attend_until=tree.attend_until,
        path_start=columns.start,
        path_index=tree.path_index,
    )
