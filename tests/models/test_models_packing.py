"""Packed rows and trees through a megatron-core model against each sequence alone, in double precision."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="models need torch")
pytest.importorskip("transformers", reason="models are made with transformers")
pytest.importorskip("megatron.core", reason="models are built with megatron-core: pip install 'gyre[real]'")
from model_kit import VOCABULARY, loaded, make_folder, row_logits  # noqa: E402

from gyre.arrays import row_starts  # noqa: E402
from gyre.backends.models.attention import PackedAttention  # noqa: E402
from gyre.backends.models.core_attention import CORE_ATTENTIONS, core_attention  # noqa: E402
from gyre.backends.models.forward import forward_logits  # noqa: E402
from gyre.backends.models.model import Model  # noqa: E402
from gyre.backends.models.world import world_of_one  # noqa: E402
from gyre.errors import InputError  # noqa: E402
from gyre.trajectory.packing.prefixes import Structure, walk  # noqa: E402

sequences = st.lists(st.integers(0, 2), min_size=1, max_size=9).map(tuple)
tries = st.sets(sequences, min_size=1, max_size=9).map(sorted)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("packing") / "model", "qwen3")


@pytest.fixture(scope="module", autouse=True)
def one_world() -> Iterator[None]:
    with world_of_one():
        yield


@pytest.fixture(scope="module")
def model(folder: Path) -> Model:
    exact = loaded(folder)
    exact.network.double()
    return exact


def laid_out(paths: list[tuple[int, ...]]) -> Structure:
    """Sorted sequences as a tree, by gyre's own packing: equal beginnings once."""
    shared = [0]
    for before, path in pairwise(paths):
        equal = [a == b for a, b in zip(before, path, strict=False)]
        shared.append(equal.index(False) if False in equal else len(equal))
    starts = row_starts(np.array([len(path) for path in paths], np.int64))
    return walk(starts, np.array(shared, np.int64), int(starts[-1]) - sum(shared))


def tree_of(paths: list[tuple[int, ...]]) -> tuple[torch.Tensor, torch.Tensor, PackedAttention, list[torch.Tensor]]:
    """Tokens, positions, attention, and where each path's tokens stand."""
    structure = laid_out(paths)
    tokens = torch.tensor(np.concatenate(paths)[structure.source])
    index = torch.tensor(structure.path_index).long().split([len(path) for path in paths])
    attention = PackedAttention.of_tree(torch.tensor(structure.attend_until))
    return tokens, torch.tensor(structure.positions), attention, list(index)


@given(tries)
def test_segments_see_what_the_ancestor_mask_allows(paths: list[tuple[int, ...]]) -> None:
    """Of a random tree, cut in two at every place as context parallelism cuts it."""
    attention = tree_of(paths)[2]
    token = torch.arange(len(attention))
    allowed = (token <= token[:, None]) & (token[:, None] < attention.attend_until)
    for cut in range(len(attention)):
        parts = [attention.part(0, cut), attention.part(cut, len(attention))] if cut else [attention]
        seen = torch.zeros_like(allowed)
        for segment in (segment for part in parts for segment in part.segments):
            for begin, end in segment.above:
                seen[segment.begin : segment.end, begin:end] = True
            own = slice(segment.begin, segment.end)
            seen[own, own] = torch.ones_like(seen[own, own]).tril()
            assert segment.seen == seen[segment.end - 1].sum()
        assert torch.equal(seen, allowed)


@settings(max_examples=15)
@given(tries)
def test_trees_give_each_path_its_own_logits(model: Model, paths: list[tuple[int, ...]]) -> None:
    """Logits and gradients: a shared prefix computed once stands for all that go through it."""
    tokens, positions, attention, index = tree_of(paths)
    packed = forward_logits(model, tokens, positions, attention)
    alone = [row_logits(model, torch.tensor(path)) for path in paths]
    expanded, gathered = torch.cat(alone), torch.cat([packed[at] for at in index])
    torch.testing.assert_close(gathered, expanded, atol=1e-11, rtol=1e-11)
    weights = list(model.network.parameters())
    for ours, theirs in zip(
        torch.autograd.grad(gathered.logsumexp(-1).sum(), weights),
        torch.autograd.grad(expanded.logsumexp(-1).sum(), weights),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, atol=1e-10, rtol=1e-10)


@settings(max_examples=15)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=6))
def test_packed_rows_are_each_row_alone(model: Model, lengths: list[int]) -> None:
    """Positions begin anew and no row sees another."""
    tokens = torch.randint(0, VOCABULARY, (sum(lengths),))
    rows = tokens.split(lengths)
    starts = torch.tensor(row_starts(np.array(lengths, np.int64)))
    positions = torch.cat([torch.arange(length) for length in lengths])
    with torch.no_grad():
        packed = forward_logits(model, tokens, positions, PackedAttention.of_rows(starts))
        expected = torch.cat([row_logits(model, row) for row in rows])
    torch.testing.assert_close(packed, expected, atol=1e-11, rtol=1e-11)


def test_flex_attention_agrees(folder: Path) -> None:
    """The slot takes PyTorch's FlexAttention, which reads the same structure; forward only on a CPU."""
    tokens, positions, attention, _ = tree_of([(1, 2, 3, 4), (1, 2, 3, 5, 6, 7), (1, 8), (9, 10)])
    with torch.no_grad():
        plain, flex = (
            forward_logits(loaded(folder, attention=name), tokens, positions, attention) for name in ("sdpa", "flex")
        )
    torch.testing.assert_close(flex, plain, atol=1e-5, rtol=1e-5)


def test_a_slot_that_is_not_there_is_named() -> None:
    """Unknown names, and names whose package this machine lacks."""
    with pytest.raises(InputError, match="give one of sdpa, flash, flex, transformer_engine, or module:Class"):
        core_attention("xformers")
    for name in ("flash", "transformer_engine"):
        module = CORE_ATTENTIONS[name].partition(":")[0]
        try:
            __import__(module)
        except Exception:
            with pytest.raises(InputError, match=f"attention '{name}' cannot be loaded"):
                core_attention(name)
