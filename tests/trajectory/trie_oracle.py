"""The tree of an execution's calls as a plain dictionary of prefixes: slow, obvious, and without the package's code.

A path is a tuple of symbols. A symbol is a token id, or for the first placeholder of a medium (id, digest, length). The
path of a token, the symbols up to and with it, names its edge: what stands once in the tree.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gyre.role import Role
from gyre.trajectory.call import CallRecord, Finish

Path = tuple[object, ...]


@dataclass(frozen=True)
class Edge:
    """A token after its prefix; the owner is the call that sampled it first, or None where it is context."""

    owner: str | None = None
    logprob: float = 0.0
    version: int = -1


def input_path(call: CallRecord) -> Path:
    """The symbols of a call's input."""
    symbols: list[object] = [int(token) for token in call.input_ids]
    for medium in call.media:
        symbols[medium.position] = (symbols[medium.position], medium.digest, medium.length)
    return tuple(symbols)


def whole_path(call: CallRecord) -> Path:
    """The symbols of a call's input and output."""
    return input_path(call) + tuple(int(token) for token in call.output_ids)


def prefixes(path: Path, after: int = 0) -> list[Path]:
    """The edges on a path, from the root on, without the first `after`."""
    return [path[:length] for length in range(after + 1, len(path) + 1)]


class TrieOracle:
    """The tree of calls that are all in order; `roles` by call id, for those without a role of their own."""

    def __init__(self, calls: Iterable[CallRecord], roles: dict[str, Role] | None = None) -> None:
        committed = sorted((call for call in calls if len(call.output_ids)), key=lambda call: call.sequence)
        self.calls = without_childless_aborts(committed)
        self.dropped = {call.call_id for call in committed} - {call.call_id for call in self.calls}
        self.roles = {call.call_id: call.role or (roles or {})[call.call_id] for call in self.calls}
        self.edges: dict[Path, Edge] = {}
        self.duplicate_tokens = 0
        self.max_logprob_difference = 0.0
        for call in self.calls:
            for path in prefixes(whole_path(call)):
                self.edges.setdefault(path, Edge())
        for call in self.calls:
            if self.is_trainable(call):
                self._claim(call)
        inner = {path[:-1] for path in self.edges}
        self.leaves = {path for path in self.edges if path not in inner}

    def is_trainable(self, call: CallRecord) -> bool:
        """Whether the policy sampled the call, for a role that is trained."""
        return call.by_policy and self.roles[call.call_id] is not Role.SIDE

    def _claim(self, call: CallRecord) -> None:
        assert call.logprobs is not None
        for row, path in enumerate(prefixes(whole_path(call), after=len(call.input_ids))):
            logprob = float(call.logprobs[row])
            held = self.edges[path]
            if held.owner is None:
                version = -1 if call.versions is None else int(call.versions[row])
                self.edges[path] = Edge(call.call_id, logprob, version)
            else:
                self.duplicate_tokens += 1
                self.max_logprob_difference = max(self.max_logprob_difference, abs(held.logprob - logprob))

    def first_call_at(self, leaf: Path) -> str:
        """The first call whose output ends at a leaf."""
        return next(call.call_id for call in self.calls if whole_path(call) == leaf)

    def role_at(self, leaf: Path) -> Role:
        """The foremost role of the calls whose output ends at a leaf."""
        return min((self.roles[call.call_id] for call in self.calls if whole_path(call) == leaf), key=list(Role).index)

    def trained_by_token(self, selected: Sequence[Path]) -> list[set[Path]]:
        """The edges that each selected leaf's path trains, where each token is trained once."""
        taken: set[Path] = set()
        rows = []
        for leaf in selected:
            rows.append({path for path in prefixes(leaf) if self.edges[path].owner is not None} - taken)
            taken |= rows[-1]
        return rows

    def trained_by_segment(self, selected: Sequence[Path]) -> list[set[Path]]:
        """The edges that each selected leaf's path trains, where each distinct output is trained once, whole."""
        taken: set[tuple[Path, Path]] = set()
        rows = []
        for leaf in selected:
            row: set[Path] = set()
            for call in self.calls:
                segment = (input_path(call), whole_path(call))
                if self.is_trainable(call) and leaf[: len(segment[1])] == segment[1] and segment not in taken:
                    taken.add(segment)
                    row.update(prefixes(segment[1], after=len(segment[0])))
            rows.append(row)
        return rows


def without_childless_aborts(calls: Sequence[CallRecord]) -> list[CallRecord]:
    """Leave out the calls that broke off and that no other call goes through, the deepest first, until none is left.

    Calls that broke off with the same tokens stand or fall together.
    """
    kept = list(calls)
    for call in sorted(calls, key=lambda call: -len(whole_path(call))):
        end = whole_path(call)
        others = [other for other in kept if whole_path(other) != end or not _broke_off(other)]
        if _broke_off(call) and not any(whole_path(other)[: len(end)] == end for other in others):
            kept = [other for other in kept if whole_path(other) != end]
    return kept


def _broke_off(call: CallRecord) -> bool:
    return call.finish in (Finish.ABORT, Finish.ERROR)


def nearest_earlier_call(calls: Sequence[CallRecord], row: int) -> tuple[int, int]:
    """The earlier call whose whole path shares the longest prefix with the input of call `row`, the latest on ties."""
    best, longest = -1, 0
    for other in range(row):
        shared = 0
        for mine, theirs in zip(input_path(calls[row]), whole_path(calls[other]), strict=False):
            if mine != theirs:
                break
            shared += 1
        if shared >= max(longest, 1):
            best, longest = other, shared
    return best, longest
