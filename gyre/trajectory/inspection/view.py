"""A tree together with what was selected from it, looked at node by node."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...arrays import BoolArray, FloatArray, Int8Array, Int32Array, Int64Array
from ...role import Role
from ..samples import PathRows
from ..tree import Tree
from .drops import Drop, context_drops

ROLES = tuple(Role)


@dataclass(frozen=True, eq=False)
class TreeView:
    """One execution's tree and, where a selection was made, its selected paths."""

    tree: Tree
    rows: PathRows | None = None

    @cached_property
    def drops(self) -> list[Drop]:
        """Where context was left behind; see `context_drops`."""
        return context_drops(self.tree)

    @cached_property
    def trained(self) -> BoolArray:
        """Whether each unique token is trained, (U,)."""
        marks = np.zeros(self.tree.unique_tokens, np.bool_)
        if self.rows is not None:
            marks[self.rows.edges[self.rows.loss_mask]] = True
        return marks

    @cached_property
    def selected(self) -> BoolArray:
        """Whether each unique token stands in a selected path, (U,)."""
        marks = np.zeros(self.tree.unique_tokens, np.bool_)
        if self.rows is not None:
            marks[self.rows.edges] = True
        return marks

    @cached_property
    def node_tokens(self) -> Int64Array:
        """Tokens of each node, (M,)."""
        return np.diff(self.tree.node_start)

    @cached_property
    def node_trained(self) -> Int64Array:
        """Trained tokens of each node, (M,)."""
        before = np.concatenate((np.zeros(1, np.int64), np.cumsum(self.trained, dtype=np.int64)))
        return np.diff(before[self.tree.node_start])

    @cached_property
    def node_call(self) -> Int32Array:
        """Row of the call that each node is of, (M,): its owner, or for context the first call that goes through it.

        -1 where no call does.
        """
        tree, none = self.tree, len(self.tree.calls)
        first = np.full(len(tree.node_parent), none, np.int64)
        rows = np.arange(none)
        for tips in (tree.calls.input_node, tree.calls.output_node):
            np.minimum.at(first, tips[tips >= 0], rows[tips >= 0])
        seen, parents = first.tolist(), tree.node_parent.tolist()
        for node in range(len(parents) - 1, -1, -1):  # depth first order: children stand after their parents
            parent = parents[node]
            if parent >= 0 and seen[node] < seen[parent]:
                seen[parent] = seen[node]
        calls = np.where(tree.node_owner >= 0, tree.node_owner, np.array(seen, np.int64))
        return np.where(calls == none, -1, calls).astype(np.int32)

    @cached_property
    def node_role(self) -> Int8Array:
        """Index into list(Role) of each node's call, (M,); that of the first leaf where no call is known."""
        roles = self.tree.calls.role
        main = np.int8(ROLES.index(Role.MAIN))
        return np.where(self.node_call >= 0, roles[self.node_call] if len(roles) else main, main).astype(np.int8)

    @cached_property
    def node_logprob_sum(self) -> FloatArray:
        """Sum of the log-probabilities of each node's sampled tokens, (M,); 0 for context."""
        before = np.concatenate((np.zeros(1), np.cumsum(self.tree.logprobs, dtype=np.float64)))
        return np.diff(before[self.tree.sampled_start])

    @cached_property
    def leaf_order(self) -> Int32Array:
        """Place of each leaf in the order of selection, from 1, (L,); 0 where it is not selected."""
        order = np.zeros(len(self.tree.leaf_node), np.int32)
        if self.rows is not None:
            order[self.rows.leaf] = np.arange(1, len(self.rows.leaf) + 1)
        return order

    @cached_property
    def leaf_tokens(self) -> Int64Array:
        """Tokens of each leaf's path from the root, (L,)."""
        leaves = self.tree.leaf_node
        return self.tree.node_depth[leaves] + self.node_tokens[leaves]

    @cached_property
    def leaf_of_node(self) -> dict[int, int]:
        """From the node of a leaf to the leaf."""
        return {node: leaf for leaf, node in enumerate(self.tree.leaf_node.tolist())}

    def role_word(self, role: int) -> str:
        """Return the role in plain words."""
        return ROLES[role].value.replace("_", " ")

    def version_range(self, node: int, last: int | None = None) -> tuple[int, int] | None:
        """Return the lowest and highest known version of nodes `node` to `last`, or None where none is known."""
        starts = self.tree.sampled_start
        versions = self.tree.versions[starts[node] : starts[(node if last is None else last) + 1]]
        known = versions[versions >= 0]
        return (int(known.min()), int(known.max())) if len(known) else None

    @cached_property
    def call_trained(self) -> Int64Array:
        """Trained tokens that each call owns, (C,)."""
        return self._by_owner(self.node_trained.astype(np.float64)).astype(np.int64)

    @cached_property
    def call_logprob_mean(self) -> FloatArray:
        """Mean log-probability of the tokens that each call owns, (C,); NaN where it owns none."""
        owned = self._by_owner(self.node_tokens.astype(np.float64))
        with np.errstate(invalid="ignore"):
            mean: FloatArray = self._by_owner(self.node_logprob_sum) / owned
        return mean

    @cached_property
    def call_versions(self) -> list[tuple[int, int] | None]:
        """Lowest and highest known version of the tokens that each call owns."""
        found: list[tuple[int, int] | None] = [None] * len(self.tree.calls)
        for node, owner in enumerate(self.tree.node_owner.tolist()):
            span = self.version_range(node) if owner >= 0 else None
            if span is not None:
                had = found[owner] or span
                found[owner] = (min(had[0], span[0]), max(had[1], span[1]))
        return found

    def _by_owner(self, of_nodes: FloatArray) -> FloatArray:
        owned = self.tree.node_owner >= 0
        return np.bincount(self.tree.node_owner[owned], weights=of_nodes[owned], minlength=len(self.tree.calls)).astype(
            np.float64
        )
