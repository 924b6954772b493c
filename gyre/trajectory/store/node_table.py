"""A tree's nodes as rows of a table: what the tree's other arrays follow from, and no more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from ...arrays import Float32Array, Int8Array, Int32Array, Int64Array, row_starts
from ...compiler import kernel
from ..tree import Tree

NODE_SCHEMA: Final[dict[str, Any]] = {
    "execution": pl.String,
    "node": pl.Int32,
    "parent": pl.Int32,  # -1 at a root
    "owner": pl.Int32,  # row of a call of the execution; -1: context
    "leaf_call": pl.Int32,  # null where the node is no leaf
    "leaf_role": pl.Int8,  # index into list(Role); null where the node is no leaf
    "ids": pl.List(pl.Int32),
    "logprobs": pl.List(pl.Float32),  # of an owned node's tokens; else empty
    "versions": pl.List(pl.Int32),  # of an owned node, by run of equal versions; else empty
    "version_tokens": pl.List(pl.Int64),  # tokens in each run
    "media_offset": pl.List(pl.Int64),  # from the node's first token
    "media_length": pl.List(pl.Int64),
    "media_digest": pl.List(pl.String),
}


@dataclass(frozen=True, slots=True, eq=False)
class NodeArrays:
    """The fields of `Tree` that a table of nodes gives; see there."""

    tokens: Int32Array
    node_start: Int64Array
    node_parent: Int32Array
    node_end: Int32Array
    node_depth: Int64Array
    node_owner: Int32Array
    sampled_start: Int64Array
    logprobs: Float32Array
    versions: Int32Array
    leaf_node: Int32Array
    leaf_call: Int32Array
    leaf_role: Int8Array
    media_position: Int64Array
    media_length: Int64Array
    media_digest: tuple[str, ...]


def node_frame(trees: Sequence[Tree]) -> pl.DataFrame:
    """Return the nodes of trees as a table of `NODE_SCHEMA`: tree after tree, the M nodes of each."""
    nodes = [len(tree.node_parent) for tree in trees]
    runs = [_VersionRuns.of(tree) for tree in trees]
    media = [_Media.of(tree) for tree in trees]
    tokens = _joined([np.diff(tree.node_start) for tree in trees])
    sampled = _joined([np.diff(tree.sampled_start) for tree in trees])
    run_count = _joined([each.of_node for each in runs])
    media_count = _joined([each.of_node for each in media])
    digests = [digest for tree in trees for digest in tree.media_digest]
    columns = {
        "execution": pl.Series([tree.execution for tree in trees]).gather(np.repeat(np.arange(len(trees)), nodes)),
        "node": _joined([np.arange(count, dtype=np.int32) for count in nodes]),
        "parent": _joined([tree.node_parent for tree in trees]),
        "owner": _joined([tree.node_owner for tree in trees]),
        "leaf_call": _where_leaf([(tree.leaf_node, tree.leaf_call) for tree in trees], nodes),
        "leaf_role": _where_leaf([(tree.leaf_node, tree.leaf_role) for tree in trees], nodes),
        "ids": _lists(_joined([tree.tokens for tree in trees]), tokens, pl.Int32),
        "logprobs": _lists(_joined([tree.logprobs for tree in trees]), sampled, pl.Float32),
        "versions": _lists(_joined([each.version for each in runs]), run_count, pl.Int32),
        "version_tokens": _lists(_joined([each.tokens for each in runs]), run_count, pl.Int64),
        "media_offset": _lists(_joined([each.offset for each in media]), media_count, pl.Int64),
        "media_length": _lists(_joined([tree.media_length for tree in trees]), media_count, pl.Int64),
        "media_digest": _lists(digests, media_count, pl.String),
    }
    return pl.DataFrame(columns, schema=NODE_SCHEMA)


def node_arrays(frame: pl.DataFrame) -> NodeArrays:
    """Return what a tree's rows of `NODE_SCHEMA`, in order, stand for."""
    tokens, node_start = _flat(frame["ids"])
    parent = _numbers(frame["parent"])
    depth, end = _shape(parent, node_start)
    logprobs, sampled_start = _flat(frame["logprobs"])
    versions, _ = _flat(frame["versions"])
    version_tokens, _ = _flat(frame["version_tokens"])
    leaf_node = np.flatnonzero(frame["leaf_call"].is_not_null().to_numpy()).astype(np.int32)
    media_offset, media_of_node = _flat(frame["media_offset"])
    media_length, _ = _flat(frame["media_length"])
    return NodeArrays(
        tokens=tokens,
        node_start=node_start,
        node_parent=parent,
        node_end=end,
        node_depth=depth,
        node_owner=_numbers(frame["owner"]),
        sampled_start=sampled_start,
        logprobs=logprobs,
        versions=np.repeat(versions, version_tokens),
        leaf_node=leaf_node,
        leaf_call=_numbers(frame["leaf_call"].drop_nulls()),
        leaf_role=_numbers(frame["leaf_role"].drop_nulls()),
        media_position=media_offset + np.repeat(node_start[:-1], np.diff(media_of_node)),
        media_length=media_length,
        media_digest=tuple(digest for digests in frame["media_digest"].to_list() for digest in digests),
    )


class _VersionRuns(NamedTuple):
    """R runs of sampled tokens of one node and version, in M nodes."""

    version: Int32Array  # R
    tokens: Int64Array  # R
    of_node: Int64Array  # M, runs in each node

    @classmethod
    def of(cls, tree: Tree) -> _VersionRuns:
        versions = tree.versions
        starts = np.zeros(len(versions) + 1, np.bool_)
        starts[1:-1] = versions[1:] != versions[:-1]
        starts[tree.sampled_start] = True
        run_start = np.flatnonzero(starts)
        runs_of_node = np.diff(np.searchsorted(run_start, tree.sampled_start))
        return cls(versions[run_start[:-1]], np.diff(run_start), runs_of_node)


class _Media(NamedTuple):
    """Where K media stand in M nodes."""

    offset: Int64Array  # K, from the node's first token
    of_node: Int64Array  # M, media that begin in each node

    @classmethod
    def of(cls, tree: Tree) -> _Media:
        node = np.searchsorted(tree.node_start, tree.media_position, side="right") - 1
        of_node = np.diff(np.searchsorted(tree.media_position, tree.node_start))
        return cls(tree.media_position - tree.node_start[node], of_node)


def _joined(arrays: Sequence[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)  # a large tree is alone, and not copied


def _where_leaf(leaves: Sequence[tuple[Int32Array, Int32Array | Int8Array]], nodes: Sequence[int]) -> pl.Series:
    """Values of leaves at their nodes, null at others; `leaves` are each tree's leaves' nodes and values."""
    starts = row_starts(np.array(nodes))[:-1]
    at = _joined([leaf + start for (leaf, _), start in zip(leaves, starts.tolist(), strict=True)])
    values = _joined([value for _, value in leaves])
    column = np.zeros(sum(nodes), values.dtype)
    column[at] = values
    empty = np.ones(len(column), np.bool_)
    empty[at] = False
    return pl.Series(column).set(pl.Series(empty), None)


def _lists(values: np.ndarray[Any, Any] | Sequence[str], lengths: Int64Array, inner: type[pl.DataType]) -> pl.Series:
    """Values as a column of lists of these lengths."""
    if not len(lengths):
        return pl.Series(dtype=pl.List(inner))  # Polars slices one list for any number of rows but none
    whole = pl.lit(pl.Series(values, dtype=inner).implode()).first()
    rows = pl.DataFrame({"start": row_starts(lengths)[:-1], "length": lengths})
    return rows.select(whole.list.slice("start", "length")).to_series()


def _flat(column: pl.Series) -> tuple[np.ndarray[Any, Any], Int64Array]:
    """A column of lists as values, which can be written to, and CSR offsets."""
    lengths = column.list.len()
    # Empty lists go first: exploded, each would give a null.
    return _numbers(column.filter(lengths > 0).explode()), row_starts(lengths.to_numpy())


def _numbers(column: pl.Series) -> np.ndarray[Any, Any]:
    return column.to_numpy(writable=True)


@kernel
def _shape(parent: Int32Array, node_start: Int64Array) -> tuple[Int64Array, Int32Array]:
    """Depth in tokens and subtree's end of each node; parents stand before their children."""
    nodes = len(parent)
    depth = np.zeros(nodes, np.int64)
    end = np.arange(1, nodes + 1).astype(np.int32)
    for node in range(nodes):
        above = parent[node]
        if above >= 0:
            depth[node] = depth[above] + node_start[above + 1] - node_start[above]
    for node in range(nodes - 1, -1, -1):
        above = parent[node]
        if above >= 0 and end[node] > end[above]:
            end[above] = end[node]
    return depth, end
