"""The micro-steps of a group, from its executions' trees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from gyre.commands import OfferMicroSteps
from gyre.errors import InputError
from gyre.trajectory.advantages import Baseline
from gyre.trajectory.making import make_samples
from gyre.trajectory.packing import MicroStep, pack_rows, pack_trees
from gyre.trajectory.samples import Samples
from gyre.trajectory.selection import Selection

if TYPE_CHECKING:
    from gyre.trajectory.store.part import Item

Packing = Literal["rows", "trees"]


class GroupWork(NamedTuple):
    """What a group gives to a step."""

    micro_steps: list[MicroStep]  # with weights for a step of one execution
    executions: int  # that have a trained token


def group_work(
    items: Sequence[Item], offer: OfferMicroSteps, selection: Selection, baseline: Baseline, packing: Packing
) -> GroupWork:
    """Make the micro-steps that `offer` speaks of, from the group's executions in the order of their numbers.

    Raises:
        InputError: the samples are not those that the offer was made for.
    """
    ordered = sorted(items, key=lambda item: _number(item[0].execution))
    samples = make_samples(ordered, selection, baseline)
    weighted = samples.weighted(1)
    lengths = np.diff(weighted.row_start).tolist()
    expected = [tokens for micro_step in offer.samples for tokens in micro_step]
    if lengths != expected:
        raise InputError(
            f"group {offer.group}: its samples have {len(lengths)} rows of {sum(lengths)} tokens, {len(expected)} of "
            f"{sum(expected)} were offered; keep the selection's settings for the whole run"
        )
    steps, row = [], 0
    for micro_step in offer.samples:
        rows = np.arange(row, row + len(micro_step), dtype=np.int64)
        steps.append(packed(weighted.select_rows(rows), packing))
        row += len(micro_step)
    return GroupWork(steps, samples.executions.counted)


def packed(samples: Samples, packing: Packing) -> MicroStep:
    """Return all rows as one micro-step."""
    budget = max(1, len(samples.tokens))
    (step,) = pack_rows(samples, budget) if packing == "rows" else pack_trees(samples, budget)
    return step


def _number(execution: str) -> int:
    """The number of an execution in the name of one of its attempts."""
    return int(execution.partition("-")[0])
