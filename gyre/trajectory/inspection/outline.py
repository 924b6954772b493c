"""A tree as an outline whose indentation stays small however deep the tree is.

A run is a chain of nodes of one role without a branch that matters. Where the last child of a branching holds more than
half of the tokens below it, that child goes on at its parent's indentation and the others hang beside it; else all
hang, in the order of their calls. From the sixth indentation on the heaviest goes on wherever it stands, so a tree of U
tokens is indented at most 6 + log2(U) times. In the short form a run also goes on past *twigs*: side branches that no
selected path takes and that hold few tokens, such as abandoned retries.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from .view import TreeView

_TWIG_SHARE: Final = 0.05  # of the tokens of the whole tree
_IN_ORDER: Final = 6  # indentations up to which children stand in the order of their calls, whatever that costs


@dataclass(frozen=True, slots=True)
class Run:
    """One line of the outline.

    It stands as far to the right as it has guides; `hangs`: it begins a side branch there. `folded` nodes beside what
    follows are not shown, for the outline was asked to stop there.
    """

    guides: tuple[bool, ...]  # for each indentation, whether something hangs there further below
    hangs: bool
    nodes: tuple[int, ...]
    twigs: tuple[int, ...] = ()  # first nodes of those that it goes past
    folded: int = 0


@dataclass(frozen=True, slots=True)
class _Start:
    """A branch or the rest of one, still to be written."""

    node: int
    guides: tuple[bool, ...]
    hangs: bool


@dataclass(slots=True)
class Outline:
    """Walks a tree. `every_node`: a line a node, twigs and all; `depth`: indentations to show, None for all."""

    view: TreeView
    every_node: bool = False
    depth: int | None = None
    _children: list[list[int]] = field(init=False)

    def __post_init__(self) -> None:
        """List the children of every node."""
        parents = self.view.tree.node_parent.tolist()
        self._children = [[] for _ in parents]
        for node, parent in enumerate(parents):
            if parent >= 0:
                self._children[parent].append(node)

    def runs(self) -> Iterator[Run]:
        """Yield the lines from top to bottom."""
        roots = [node for node, parent in enumerate(self.view.tree.node_parent.tolist()) if parent < 0]
        waiting = [_Start(node, (), False) for node in reversed(roots)]
        while waiting:
            start = waiting.pop()
            nodes, twigs, children = self._chain(start.node)
            starts, folded = self._starts(start, children)
            yield Run(start.guides, start.hangs, tuple(nodes), tuple(twigs), folded)
            waiting.extend(reversed(starts))

    def _starts(self, start: _Start, children: list[int]) -> tuple[list[_Start], int]:
        """Return what follows a run, and how many nodes are left out, for they stand too deep."""
        trunk = self._trunk(children, len(start.guides) < _IN_ORDER)
        side = [child for child in children if child != trunk]
        goes_on = [_Start(trunk, start.guides, False)] if trunk >= 0 else []
        if self.depth is not None and len(start.guides) >= self.depth:
            return goes_on, sum(int(self.view.tree.node_end[child]) - child for child in side)
        last = len(side) - 1
        hanging = [
            _Start(child, (*start.guides, bool(goes_on) or number < last), True) for number, child in enumerate(side)
        ]
        return hanging + goes_on, 0

    def _chain(self, node: int) -> tuple[list[int], list[int], list[int]]:
        """Follow a run from its first node: its nodes, the twigs it passes, and the children where it ends."""
        nodes, twigs, roles = [node], list[int](), self.view.node_role
        while True:
            children = self._children[node]
            kept = [child for child in children if len(children) == 1 or not self._is_twig(child)]
            if self.every_node or len(kept) != 1 or roles[kept[0]] != roles[node]:
                return nodes, twigs, children
            twigs += [child for child in children if child != kept[0]]
            node = kept[0]
            nodes.append(node)

    def _trunk(self, children: list[int], in_order: bool) -> int:
        """Return the child with more than half of the tokens, or -1; `in_order`: it must be the last."""
        weights = [self.weight(child) for child in children]
        heaviest = max(weights, default=0)
        if 2 * heaviest <= sum(weights) or (in_order and weights[-1] != heaviest):
            return -1
        return children[weights.index(heaviest)]

    def _is_twig(self, node: int) -> bool:
        tree = self.view.tree
        if tree.node_end[node] - node > 2 or self.weight(node) > _TWIG_SHARE * tree.unique_tokens:
            return False
        return not self.view.selected[tree.node_start[node] : tree.node_start[tree.node_end[node]]].any()

    def weight(self, node: int) -> int:
        """Tokens of a node and all below it."""
        tree = self.view.tree
        return int(tree.node_start[tree.node_end[node]] - tree.node_start[node])
