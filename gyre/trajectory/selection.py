"""Which root-to-leaf paths of an execution are trained on."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, field_validator

from ..arrays import Int8Array, Int64Array, row_sums
from ..errors import InputError
from ..imported import imported
from ..leaf_drawing import (
    CLASS_OF_ROLE,
    UNTRAINED,
    adding_leaves,
    draw_leaves,
    inherited_classes,
    path_uniforms,
)
from .paths import Dedup, Paths
from .segments import trainable_segments
from .tree import Tree

MAIN_CLASS: Final = 0


class Mode(StrEnum):
    """Built-in rules of selection."""

    BOUNDED = "bounded"  # at most `max_paths`, drawn; see `gyre.leaf_drawing`
    ALL = "all"  # every path that adds a trainable token, by class, then as the leaves stand
    MAIN_ONLY = "main_only"  # as ALL, but of class main alone


class OverLength(StrEnum):
    """What becomes of a path that is longer than a row may be."""

    TRUNCATE = "truncate"  # its first `max_tokens` tokens are kept
    DROP = "drop"  # it is not selected


class Selection(BaseModel):
    """Settings of the selection.

    A rule of the user's own is a function `(tree, selection) -> indices of leaves`, in the order in which their paths
    are to be taken, given itself or by name as `module:function`. Length limits and de-duplication hold for it too.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    mode: Mode | str | Callable[..., Any] = Field(
        default=Mode.BOUNDED, description="bounded, all, main_only, or a function of your own as module:function"
    )
    max_paths: int = Field(default=5, ge=1, description="J_max, most paths of an execution that are drawn")
    seed: int = Field(default=0, ge=-(2**63), lt=2**64, description="seed of the draws")
    max_tokens: int | None = Field(default=None, ge=2, lt=2**31, description="most tokens of a row; left out: no limit")
    over_length: OverLength = Field(default=OverLength.TRUNCATE, description="what becomes of longer paths")
    dedup: Dedup = Field(default=Dedup.TOKEN, description="what is trained only once in an execution")

    @field_validator("mode")
    @classmethod
    def _known_mode(cls, mode: str | Callable[..., Any]) -> Mode | str | Callable[..., Any]:
        if not isinstance(mode, str) or ":" in mode:
            return mode
        if mode not in list(Mode):
            raise ValueError(f"no selection {mode!r}: choose one of {', '.join(Mode)}, or give your own as module:name")
        return Mode(mode)


def select(tree: Tree, selection: Selection) -> Paths:
    """Select the paths of an execution that are trained on. A path that adds no trainable token is left out.

    Truncation comes first: a token beyond `max_tokens` is not trainable here, neither in the draw nor later. Draws
    depend on the seed, the execution's id and the number of the draw, not on other executions.

    Raises:
        InputError: a function of the user's own cannot be loaded, fails, or returns something else than leaves.
    """
    length = path_lengths(tree)
    limit = selection.max_tokens
    leaf_class = leaf_classes(tree)
    if limit is not None and selection.over_length is OverLength.DROP:
        leaf_class = np.where(length > limit, np.int8(UNTRAINED), leaf_class)
    fresh = trainable_tokens(tree, selection)
    if selection.mode is Mode.BOUNDED:
        draws = min(selection.max_paths, len(length))
        uniform = path_uniforms(selection.seed, [tree.execution], draws)[0]
        leaves = draw_leaves(tree.node_parent, fresh, tree.leaf_node, leaf_class, uniform)
    else:
        wanted = _wanted_leaves(tree, selection, leaf_class)
        leaves = adding_leaves(tree.node_parent, fresh, tree.leaf_node, wanted)
    kept = length[leaves] if limit is None else np.minimum(length[leaves], limit)
    return Paths(leaves.astype(np.int32), kept, selection.dedup)


def path_lengths(tree: Tree) -> Int64Array:
    """Return the tokens from the root to each leaf, (L,)."""
    return tree.node_depth[tree.leaf_node] + np.diff(tree.node_start)[tree.leaf_node]


def leaf_classes(tree: Tree) -> Int8Array:
    """Return the class of each leaf, (L,), as `gyre.leaf_drawing` numbers them."""
    owned = tree.node_owner >= 0
    node_class = np.full(len(owned), UNTRAINED, np.int8)
    node_class[owned] = CLASS_OF_ROLE[tree.calls.role[tree.node_owner[owned]]]
    return inherited_classes(tree.node_parent, node_class, tree.leaf_node, CLASS_OF_ROLE[tree.leaf_role])


def trainable_tokens(tree: Tree, selection: Selection) -> Int64Array:
    """Return the trainable tokens of each node, (M,), that `max_tokens` leaves.

    De-duplicated by segment, a node counts the outputs that end in it, whole: whoever takes it trains them.
    """
    limit = np.int64(selection.max_tokens) if selection.max_tokens is not None else np.iinfo(np.int64).max
    if selection.dedup is Dedup.TOKEN:
        lengths = np.diff(tree.node_start)
        return np.where(tree.node_owner >= 0, np.clip(limit - tree.node_depth, 0, lengths), 0)
    segments = trainable_segments(tree)
    kept = np.clip(limit - segments.start, 0, segments.end - segments.start)
    return row_sums(kept, segments.of_node)


def _wanted_leaves(tree: Tree, selection: Selection, leaf_class: Int8Array) -> Int64Array:
    if isinstance(selection.mode, Mode):
        leaves: Int64Array = np.argsort(leaf_class, kind="stable")
        if selection.mode is Mode.MAIN_ONLY:
            leaves = leaves[leaf_class[leaves] == MAIN_CLASS]
    else:
        leaves = _users_leaves(tree, selection)
    return np.compress(leaf_class[leaves] != UNTRAINED, leaves)


def _users_leaves(tree: Tree, selection: Selection) -> Int64Array:
    """Leaves that the user's function returns, checked."""
    rule = selection.mode
    name = f"selection {rule if isinstance(rule, str) else getattr(rule, '__qualname__', repr(rule))}"
    if isinstance(rule, str):
        found = imported(rule, name)
        if not callable(found):
            raise InputError(f"{name} is no function; name one that takes (tree, selection)")
        rule = found
    where = f"{name}, execution {tree.execution}"
    try:
        leaves = np.asarray(rule(tree, selection))
    except Exception as error:  # a user's function may fail in any way
        raise InputError(f"{where}: it failed: {type(error).__name__}: {error}") from error
    if leaves.size == 0:
        return np.zeros(0, np.int64)
    if leaves.ndim != 1 or not np.issubdtype(leaves.dtype, np.integer):
        raise InputError(f"{where}: it must return a list of whole numbers, indices of leaves")
    wrong = leaves[(leaves < 0) | (leaves >= len(tree.leaf_node))]
    if len(wrong):
        raise InputError(f"{where}: there is no leaf {wrong[0]}; the tree has {len(tree.leaf_node)}")
    if len(np.unique(leaves)) < len(leaves):
        raise InputError(f"{where}: it returned a leaf more than once")
    return leaves.astype(np.int64)
