"""A cell's trainer from its recipe, in this process or in processes of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gyre.backends.models.world import leave_world

from .cell import TrainingCell
from .cell_recipe import CellRecipe, built_rank
from .rank_cell import RankCell


@contextmanager
def open_cell(recipe: CellRecipe) -> Iterator[TrainingCell]:
    """Build the trainer of a cell for as long as the context lasts: one rank in this process, more in their own.

    Raises:
        InputError: one rank: the layout does not fit the model, or the folder cannot be read.
        CellLostError: several: the same; its message says it.
    """
    if recipe.layout.ranks > 1:
        with RankCell(recipe) as cell:
            yield cell
        return
    try:
        yield built_rank(recipe)
    finally:
        leave_world()
