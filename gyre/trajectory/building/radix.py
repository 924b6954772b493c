"""A radix forest of token sequences in flat arrays that grow: exact, and compiled.

A node is a run of tokens in the pool. Its children are found in one open-addressing hash table on (node, first token);
an entry is only the child's number, and each probe is confirmed on the child's parent and token.

Where a sequence leaves a node half-way, the node is split and its *lower* half keeps its number, so that its children
stay valid. A place is a node and a depth, the number of tokens from the root to the place. After a split it may lie
above its node: then it belongs to the ancestor that spans its depth.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ...arrays import Int32Array, Int64Array
from ...compiler import kernel
from .reserve import grown, reserved

# Columns of `nodes`. A node spans the depths [START, END): the numbers of tokens before it, and up to its end.
START: Final = 0
END: Final = 1
OFFSET: Final = 2  # of its first token in the pool
PARENT: Final = 3  # -1 at a root

# Columns of `places`: where the input and the output of a call end.
INPUT_NODE: Final = 0
INPUT_DEPTH: Final = 1
OUTPUT_NODE: Final = 2
OUTPUT_DEPTH: Final = 3

# Entries of `used`, the filled rows of each array.
NODES: Final = 0
TOKENS: Final = 1
CALLS: Final = 2

_ROOT: Final = -1
_EMPTY: Final = -1
_BLOCK: Final = 64  # tokens compared at once; a fixed inner loop without a way out is compiled to vector instructions
_MAX_NEW_NODES: Final = 2  # of one insertion: the upper half of a split, and the new tail


class Radix:
    """Calls inserted one after the other: each a path from a root, with a place for its input and one for its output.

    Arrays: nodes (N, 4) and places (C, 4), columns as above; pool (tokens). Rows beyond `used` are reserve. Tokens are
    copied in where they are new, and nothing else of what is inserted is kept.
    """

    def __init__(self) -> None:
        self.pool: Int32Array = reserved(1 << 20, np.int32)
        self.nodes: Int64Array = np.empty((64, 4), np.int64)
        self.places: Int64Array = np.empty((64, 4), np.int64)
        self.used: Int64Array = np.zeros(3, np.int64)
        self._table: Int32Array = np.full(2 * len(self.nodes), _EMPTY, np.int32)

    def insert(self, inputs: Int32Array, outputs: Int32Array, negative: bool = False) -> bool:
        """Add a call: one input token or more, then one output token or more, as contiguous arrays.

        Returns False and adds nothing if there is a negative token where that is not allowed; it is found on the way.
        """
        inputs, outputs = _read_only(inputs), _read_only(outputs)
        while True:
            lacking = _insert(self.nodes, self._table, self.pool, self.places, self.used, inputs, outputs, negative)
            if lacking <= 0:
                return lacking == 0
            self._grow(lacking)

    def _grow(self, lacking: int) -> None:
        """Make room for `lacking` more tokens, and for one more call and its nodes."""
        nodes, tokens, calls = (int(count) for count in self.used)
        if tokens + lacking > len(self.pool):
            self.pool = grown(self.pool, tokens, tokens + lacking)
        if calls == len(self.places):
            self.places.resize((2 * len(self.places), 4), refcheck=False)
        if nodes + _MAX_NEW_NODES > len(self.nodes):
            self.nodes.resize((2 * len(self.nodes), 4), refcheck=False)
            self._table = np.full(2 * len(self.nodes), _EMPTY, np.int32)
            _fill_table(self.nodes, self._table, self.pool, nodes)


def _read_only(values: Int32Array) -> Int32Array:
    """One type for all arrays, however they were made, so that one compiled kernel takes them all."""
    if not values.flags.aligned:
        values = values.copy()
    view = values.view()
    view.flags.writeable = False
    return view


@kernel
def _slot(parent: int, token: int, mask: Any) -> Any:
    """Where to look first for a child: two multiplications that carry each bit into the upper half."""
    key = np.uint64(np.int64(parent)) * np.uint64(0x9E3779B97F4A7C15) ^ np.uint64(np.int64(token))
    key = (key ^ (key >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    return np.int64((key >> np.uint64(32)) & np.uint64(mask))


@kernel
def _entry(nodes: Int64Array, table: Int32Array, pool: Int32Array, parent: int, token: int) -> int:
    """Slot of the child of `parent` that begins with `token`, or the empty slot where it would stand."""
    mask = len(table) - 1
    slot = _slot(parent, token, mask)
    while True:
        child = table[slot]
        if child == _EMPTY or (nodes[child, PARENT] == parent and pool[nodes[child, OFFSET]] == token):
            return int(slot)
        slot = (slot + 1) & mask


@kernel
def _fill_table(nodes: Int64Array, table: Int32Array, pool: Int32Array, count: int) -> None:
    for node in range(count):
        table[_entry(nodes, table, pool, nodes[node, PARENT], pool[nodes[node, OFFSET]])] = node


@kernel
def _bits(ids: Int32Array) -> int:
    """Bitwise or of all ids: negative if one of them is."""
    bits = np.int32(0)
    for i in range(len(ids)):
        bits |= ids[i]
    return int(bits)


@kernel
def _common(left: Int32Array, right: Int32Array) -> tuple[int, int]:
    """Length of the longest common prefix of two arrays of equal length; and the prefix's bitwise or."""
    length = len(left)
    at = 0
    bits = np.int32(0)
    while at + _BLOCK <= length:
        a, b = left[at : at + _BLOCK], right[at : at + _BLOCK]
        different, block_bits = np.int32(0), np.int32(0)
        for i in range(_BLOCK):
            different |= a[i] ^ b[i]
            block_bits |= b[i]
        if different != 0:
            break
        bits |= block_bits
        at += _BLOCK
    while at < length and left[at] == right[at]:
        bits |= right[at]
        at += 1
    return at, int(bits)


@kernel
def _walk(
    nodes: Int64Array, table: Int32Array, pool: Int32Array, ids: Int32Array, node: int, depth: int
) -> tuple[int, int, int, int]:
    """Follow `ids` down from a place.

    Returns the place where they leave the forest or end, how many were followed, and the bitwise or of all ids.
    """
    at, bits = 0, 0
    while at < len(ids):
        if node == _ROOT or depth == nodes[node, END]:
            child = table[_entry(nodes, table, pool, node, ids[at])]
            if child == _EMPTY:
                break
            node = child
        span = min(nodes[node, END] - depth, len(ids) - at)
        begin = nodes[node, OFFSET] + depth - nodes[node, START]
        same, same_bits = _common(pool[begin : begin + span], ids[at : at + span])
        bits |= same_bits
        at += same
        depth += same
        if same < span:
            break
    return node, depth, at, bits | _bits(ids[at:])


@kernel
def _split(nodes: Int64Array, table: Int32Array, pool: Int32Array, used: Int64Array, node: int, depth: int) -> int:
    """Cut `node` at `depth`, inside it, and return its new upper half."""
    upper = used[NODES]
    used[NODES] += 1
    nodes[upper, START] = nodes[node, START]
    nodes[upper, END] = depth
    nodes[upper, OFFSET] = nodes[node, OFFSET]
    nodes[upper, PARENT] = nodes[node, PARENT]
    table[_entry(nodes, table, pool, nodes[node, PARENT], pool[nodes[node, OFFSET]])] = upper
    nodes[node, OFFSET] += depth - nodes[node, START]
    nodes[node, START] = depth
    nodes[node, PARENT] = upper
    table[_entry(nodes, table, pool, upper, pool[nodes[node, OFFSET]])] = node
    return int(upper)


@kernel
def _tail(
    nodes: Int64Array, table: Int32Array, pool: Int32Array, used: Int64Array, node: int, depth: int, length: int
) -> int:
    """Return the node that is to hold the next `length` tokens of the pool, below a place."""
    if node != _ROOT and depth < nodes[node, END]:
        node = _split(nodes, table, pool, used, node, depth)
    elif node != _ROOT and nodes[node, OFFSET] + depth - nodes[node, START] == used[TOKENS]:
        nodes[node, END] += length  # its tokens are the pool's last: it has no children, which would stand behind it
        return node
    tail = used[NODES]
    used[NODES] += 1
    nodes[tail, START] = depth
    nodes[tail, END] = depth + length
    nodes[tail, OFFSET] = used[TOKENS]
    nodes[tail, PARENT] = node
    table[_entry(nodes, table, pool, node, pool[used[TOKENS]])] = tail
    return int(tail)


@kernel
def _insert(
    nodes: Int64Array,
    table: Int32Array,
    pool: Int32Array,
    places: Int64Array,
    used: Int64Array,
    inputs: Int32Array,
    outputs: Int32Array,
    negative: bool,
) -> int:
    """Insert a call and return 0; or change nothing and return for how many tokens there must be room (1 or more).

    Returns -1 if there is a token that must not be negative.
    """
    node, depth, followed, bits = _walk(nodes, table, pool, inputs, _ROOT, 0)
    input_node, new_inputs, new_outputs = node, inputs[followed:], outputs
    if followed == len(inputs):
        node, depth, followed, output_bits = _walk(nodes, table, pool, outputs, node, depth)
        new_outputs = outputs[followed:]
    else:
        output_bits = _bits(outputs)
    if (bits | output_bits) < 0 and not negative:
        return -1
    length = len(new_inputs) + len(new_outputs)
    row, first = used[CALLS], used[TOKENS]
    if row == len(places) or used[NODES] + _MAX_NEW_NODES > len(nodes) or first + length > len(pool):
        return max(length, 1)
    if length > 0:
        pool[first : first + len(new_inputs)] = new_inputs
        pool[first + len(new_inputs) : first + length] = new_outputs
        node = _tail(nodes, table, pool, used, node, depth, length)
        used[TOKENS] += length
    places[row, INPUT_NODE] = node if len(new_inputs) > 0 else input_node
    places[row, INPUT_DEPTH] = len(inputs)
    places[row, OUTPUT_NODE] = node
    places[row, OUTPUT_DEPTH] = len(inputs) + len(outputs)
    used[CALLS] += 1
    return 0
