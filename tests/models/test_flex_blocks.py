"""Blocks of pairs that FlexAttention computes, against PyTorch's own reading of the same mask."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="models need torch")
pytest.importorskip("megatron.core", reason="models are built with megatron-core: pip install 'gyre[real]'")
from torch.nn.attention.flex_attention import create_block_mask  # noqa: E402

from gyre.backends.models.attention import PackedAttention  # noqa: E402
from gyre.backends.models.flex_attention import _mask  # noqa: E402


def tree(lengths: list[tuple[int, int]]) -> PackedAttention:
    """Nodes one after the other: `up` nodes of the path before are left, then come `tokens` new ones."""
    ends: list[int] = []  # of what each token sees it, by token; filled as nodes are left
    held: list[tuple[int, int]] = []
    for up, tokens in lengths:
        for _ in range(min(up, len(held))):
            begin, end = held.pop()
            ends[begin:end] = [len(ends)] * (end - begin)
        held.append((len(ends), len(ends) + tokens))
        ends += [0] * tokens
    while held:
        begin, end = held.pop()
        ends[begin:end] = [len(ends)] * (end - begin)
    return PackedAttention.of_tree(torch.tensor(np.array(ends, np.int32)))


nodes = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 400)), min_size=1, max_size=6)


@settings(max_examples=25, deadline=None)
@given(nodes, st.booleans())
def test_blocks_are_those_of_torch(lengths: list[tuple[int, int]], cut: bool) -> None:
    """Whole trees, and the second part of one, as context parallelism cuts it."""
    attention = tree(lengths)
    tokens = len(attention)
    if cut and tokens > 1:
        attention = attention.part(tokens // 2, tokens)
    queries, first, until = tokens - attention.first, attention.first, attention.attend_until
    expected = create_block_mask(
        lambda b, h, q, k: (k <= q + first) & (q + first < until[k]), None, None, queries, tokens, device="cpu"
    )
    found = _mask(attention, queries)
    assert found.seq_lengths == expected.seq_lengths
    for name in ("kv_num_blocks", "full_kv_num_blocks"):
        assert torch.equal(getattr(found, name), getattr(expected, name)), name
    assert torch.equal(found.to_dense(), expected.to_dense())
