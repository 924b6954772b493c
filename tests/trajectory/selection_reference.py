"""The rules of selection and masks in plain Python, on prefixes: a reference for selected paths and what they train."""

from __future__ import annotations

from collections.abc import Sequence

from trie_oracle import Path, TrieOracle, prefixes, whole_path

from gyre.leaf_drawing import path_uniforms
from gyre.role import TRAINED_ROLES, Role
from gyre.trajectory.paths import Dedup
from gyre.trajectory.selection import Mode, OverLength, Selection

Output = tuple[Path, Path]  # a distinct output: from behind one path to the end of another


class ReferenceSelection:
    """Selects among the leaves of one execution's trie."""

    def __init__(self, oracle: TrieOracle, selection: Selection) -> None:
        self.oracle = oracle
        self.selection = selection
        self.limit = selection.max_tokens or 10**9

    def gains(self, leaf: Path, taken: set[Path] | set[Output]) -> tuple[int, set[Path] | set[Output]]:
        """Trainable tokens of a path that are not taken yet, and what is taken once it is selected."""
        if self.selection.dedup is Dedup.TOKEN:
            held = {path for path in prefixes(leaf[: self.limit]) if self.oracle.edges[path].owner is not None}
            return len(held - taken), held | taken
        through = {
            (whole_path(call)[: len(call.input_ids)], whole_path(call))
            for call in self.oracle.calls
            if self.oracle.is_trainable(call) and leaf[: len(whole_path(call))] == whole_path(call)
        }
        count = sum(max(min(len(end), self.limit) - len(start), 0) for start, end in through - taken)
        return count, through | taken

    def class_of(self, leaf: Path) -> int | None:
        """Class of a leaf; one of a side call has that of the deepest trained output on its path."""
        role = self.oracle.role_at(leaf)
        for path in reversed(prefixes(leaf)):
            owner = self.oracle.edges[path].owner
            if role not in TRAINED_ROLES and owner is not None:
                role = self.oracle.roles[owner]
        too_long = self.selection.over_length is OverLength.DROP and len(leaf) > self.limit
        return None if role is Role.SIDE or too_long else TRAINED_ROLES.index(role)

    def drawn(self, leaves: Sequence[Path]) -> list[int]:
        """The loop of the bounded rule."""
        taken: set[Path] | set[Output] = set()
        chosen: list[int] = []
        for uniform in path_uniforms(self.selection.seed, ["e"], self.selection.max_paths)[0]:
            gain = [self.gains(leaf, taken)[0] if self.class_of(leaf) is not None else 0 for leaf in leaves]
            left = [i for i, tokens in enumerate(gain) if tokens]
            if not left:
                break
            highest = min(self.class_of(leaves[i]) for i in left)
            line = [i for i in left if self.class_of(leaves[i]) == highest for _ in range(gain[i])]
            chosen.append(line[int(uniform * len(line))])
            taken = self.gains(leaves[chosen[-1]], taken)[1]
        return chosen

    def in_order(self, leaves: Sequence[Path], main_only: bool) -> list[int]:
        """Every path that adds something, by class."""
        classes = {i: self.class_of(leaf) for i, leaf in enumerate(leaves)}
        wanted = [i for i, found in classes.items() if found is not None and (not main_only or found == 0)]
        taken: set[Path] | set[Output] = set()
        chosen = []
        for i in sorted(wanted, key=lambda i: classes[i]):
            count, taken_then = self.gains(leaves[i], taken)
            if count:
                chosen.append(i)
                taken = taken_then
        return chosen

    def selected(self, leaves: Sequence[Path]) -> list[int]:
        """Indices of the selected leaves."""
        if self.selection.mode is Mode.BOUNDED:
            return self.drawn(leaves)
        return self.in_order(leaves, self.selection.mode is Mode.MAIN_ONLY)
