"""A tree read back as paths, and calls written short, for tests of trees."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from trie_oracle import Edge, Path

from gyre.role import Role
from gyre.trajectory.call import CallRecord
from gyre.trajectory.tree import Tree

Pair = tuple[Sequence[int], Sequence[int]]  # input and output ids


def record(sequence: int, input_ids: Sequence[int], output_ids: Sequence[int], **other: Any) -> CallRecord:
    """Return call `c<sequence>` of execution `e`, with log-probabilities -0.5 and role main unless told otherwise."""
    fields: dict[str, Any] = {
        "call_id": f"c{sequence}",
        "logprobs": np.full(len(output_ids), -0.5, np.float32),
        "role": Role.MAIN,
        **other,
    }
    return CallRecord(
        execution="e",
        sequence=sequence,
        input_ids=np.array(input_ids, np.int32),
        output_ids=np.array(output_ids, np.int32),
        **fields,
    )


def records(*pairs: Pair) -> list[CallRecord]:
    """Return calls of role main, committed as they stand."""
    return [record(sequence, *pair) for sequence, pair in enumerate(pairs)]


def node_paths(tree: Tree) -> list[Path]:
    """Return the path to the end of each node."""
    symbols: list[object] = tree.tokens.tolist()
    for position, length, digest in zip(tree.media_position, tree.media_length, tree.media_digest, strict=True):
        symbols[position] = (symbols[position], digest, int(length))
    paths: list[Path] = []
    for node, parent in enumerate(tree.node_parent):
        above = paths[parent] if parent >= 0 else ()
        assert len(above) == tree.node_depth[node]
        paths.append(above + tuple(symbols[tree.node_start[node] : tree.node_start[node + 1]]))
    return paths


def edges(tree: Tree) -> dict[Path, Edge]:
    """Return what the tree says of each token, by the path of the token."""
    found: dict[Path, Edge] = {}
    for node, path in enumerate(node_paths(tree)):
        owner = tree.node_owner[node]
        sampled = range(int(tree.sampled_start[node]), int(tree.sampled_start[node + 1]))
        first = int(tree.node_depth[node])
        assert len(sampled) == (len(path) - first if owner >= 0 else 0)
        for at in range(first, len(path)):
            assert path[: at + 1] not in found, "a token stands twice"
            if owner >= 0:
                row = sampled[at - first]
                edge = Edge(tree.calls.call_id[owner], float(tree.logprobs[row]), int(tree.versions[row]))
            else:
                edge = Edge()
            found[path[: at + 1]] = edge
    return found


def tip(tree: Tree, paths: list[Path], node: int, offset: int) -> Path:
    """Return the path to a tip."""
    assert 1 <= offset <= tree.node_start[node + 1] - tree.node_start[node]
    return paths[node][: int(tree.node_depth[node]) + offset]


def assert_same(left: Tree, right: Tree) -> None:
    """Check that two trees are equal in every field, with the same types."""
    for mine, theirs in ((left, right), (left.calls, right.calls)):
        for field in dataclasses.fields(mine):
            one, other = getattr(mine, field.name), getattr(theirs, field.name)
            if isinstance(one, np.ndarray):
                np.testing.assert_array_equal(one, other, err_msg=field.name)
                assert one.dtype == other.dtype, field.name
            elif field.name != "calls":
                assert one == other, field.name
