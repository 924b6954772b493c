"""From a store to micro-steps, a group at a time.

A token's weight A_e / (N_e * E) needs E, the number of executions with a trained token in the whole step. So the groups
are gone through twice: to count E, and to make the samples with their final weights. Selection is seeded by execution,
so both give the same paths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ...errors import InputError
from ..advantages import Baseline
from ..making import make_samples
from ..packing import MicroStep, Oversize, pack_rows, pack_trees
from ..samples import Samples
from ..selection import Selection
from ..store import TrajectoryStore

Packing = Literal["rows", "tree"]
"""How samples become micro-steps: whole rows side by side, or each shared prefix once."""


@dataclass(slots=True)
class StepTotals:
    """What a step holds."""

    executions: int = 0  # E: those with a trained token
    rows: int = 0
    tokens: int = 0  # of all rows
    trained_tokens: int = 0  # of all rows, in the mask
    dropped: dict[str, str] = field(default_factory=dict)  # execution to reason, of those that are not trained

    def add(self, samples: Samples) -> None:
        """Count a group."""
        self.executions += samples.executions.counted
        self.rows += samples.rows
        self.tokens += len(samples.tokens)
        self.trained_tokens += int(samples.executions.trained_tokens.sum())
        self.dropped.update(samples.dropped)


def step_totals(
    store: TrajectoryStore,
    selection: Selection,
    baseline: Baseline,
    *,
    groups: Sequence[str] | None = None,
    advantages: Mapping[str, float] | None = None,
) -> StepTotals:
    """Return what the step of `groups` (left out: of all in the store) holds; errors as in `step_samples`."""
    totals = StepTotals()
    for group in store.groups() if groups is None else groups:
        totals.add(_group_samples(store, group, selection, baseline, advantages))
    return totals


def step_samples(
    store: TrajectoryStore,
    selection: Selection,
    baseline: Baseline,
    *,
    groups: Sequence[str] | None = None,
    advantages: Mapping[str, float] | None = None,
    totals: StepTotals | None = None,
) -> Iterator[Samples]:
    """Yield the samples of each group, weighted as parts of one step; together they are what `make_samples` gives.

    Args:
        store: with every execution of each group, for the baseline.
        selection: which paths are trained.
        baseline: what is subtracted from scores.
        groups: of the step, each once; left out: all in the store.
        advantages: by execution, in place of scores and baseline.
        totals: of this very step where they are known already; it saves the first pass.

    Raises:
        InputError: there is no such group, one is given twice, a part of the store is damaged, or as `make_samples`.
    """
    names = list(store.groups()) if groups is None else list(groups)
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"group {twice!r} is in the step twice; give each group once")
    if totals is None:
        totals = step_totals(store, selection, baseline, groups=names, advantages=advantages)
    counted = totals.executions
    return (_group_samples(store, name, selection, baseline, advantages).weighted(counted) for name in names)


def packed_micro_steps(
    store: TrajectoryStore,
    selection: Selection,
    baseline: Baseline,
    token_budget: int,
    packing: Packing = "rows",
    *,
    oversize: Oversize = "refuse",
    groups: Sequence[str] | None = None,
    advantages: Mapping[str, float] | None = None,
    totals: StepTotals | None = None,
) -> Iterator[MicroStep]:
    """Yield the micro-steps of a step, group by group; each holds rows of one group, with their final weights.

    Memory is that of the largest group's samples. See `step_samples` for the other arguments, and `pack_rows` or
    `pack_trees` for `token_budget`, `oversize` and the form of micro-steps.

    Raises:
        InputError: as `step_samples`, or as the packing.
    """
    pack: Callable[..., Iterable[MicroStep]] = pack_rows if packing == "rows" else pack_trees
    parts = step_samples(store, selection, baseline, groups=groups, advantages=advantages, totals=totals)
    while (samples := next(parts, None)) is not None:
        packed = pack(samples, token_budget, oversize=oversize)
        del samples
        yield from packed
        del packed  # before the next group's samples are made


def _group_samples(
    store: TrajectoryStore,
    group: str,
    selection: Selection,
    baseline: Baseline,
    advantages: Mapping[str, float] | None,
) -> Samples:
    return make_samples(store.read_group(group), selection, baseline, advantages=advantages)
