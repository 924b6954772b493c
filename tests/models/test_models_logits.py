"""Logits of megatron-core models against transformers, whole and packed, and weights there and back."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="models need torch")
pytest.importorskip("transformers", reason="logits are compared with transformers")
pytest.importorskip("megatron.core", reason="models are built with megatron-core: pip install 'gyre[real]'")
from model_kit import KINDS, VOCABULARY, loaded, make_folder, reference, row_logits, some_tokens  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

from gyre.backends.models.config_file import read_architecture  # noqa: E402
from gyre.backends.models.exporting import export  # noqa: E402
from gyre.backends.models.layout import Layout  # noqa: E402
from gyre.backends.models.model import build  # noqa: E402
from gyre.backends.models.tensor_table import parameters  # noqa: E402

pytestmark = pytest.mark.usefixtures("world")


@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_those_of_transformers(kind: str, tmp_path: Path) -> None:
    """Equal to the last bit where the model is dense; experts are summed in another order."""
    folder = make_folder(tmp_path / "model", kind)
    tokens = some_tokens(120)
    with torch.no_grad():
        ours = row_logits(loaded(folder), tokens)
        theirs = reference(folder)(tokens[None]).logits[0]
    if "moe" in kind:
        torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=1e-5)
    else:
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("kind", ["qwen3", "qwen3_moe"])
def test_gradients_are_those_of_transformers(kind: str, tmp_path: Path) -> None:
    """The norm of the whole gradient, and the embedding's element by element."""
    folder = make_folder(tmp_path / "model", kind)
    tokens = some_tokens(64)
    model, other = loaded(folder), reference(folder)
    for logits in (row_logits(model, tokens), other(tokens[None]).logits[0]):
        logits[:-1].log_softmax(-1).gather(1, tokens[1:, None]).sum().backward()
    gradients = [[weight.grad for weight in part.parameters()] for part in (model.network, other)]
    norms = [torch.nn.utils.get_total_norm(parts).item() for parts in gradients]
    assert norms[0] == pytest.approx(norms[1], rel=1e-5)
    embedding = model.network.embedding.word_embeddings.weight.grad
    torch.testing.assert_close(embedding, other.model.embed_tokens.weight.grad, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_export_writes_the_weights_that_were_loaded(kind: str, tmp_path: Path) -> None:
    """In many files with an index, which transformers loads to the same logits; the tokenizer's file goes along."""
    folder, out = make_folder(tmp_path / "model", kind), tmp_path / "out"
    export(loaded(folder), out, folder, shard_bytes=30_000)
    parts = [load_file(path) for path in sorted(out.glob("model-*-of-*.safetensors"))]
    assert len(parts) > 2
    exported = {name: weight for part in parts for name, weight in part.items()}
    original = load_file(folder / "model.safetensors")
    assert exported.keys() == original.keys()
    assert all(torch.equal(exported[name], original[name]) for name in original)
    assert (out / "tokenizer_config.json").read_bytes() == (folder / "tokenizer_config.json").read_bytes()
    tokens = some_tokens(20)[None]
    with torch.no_grad():
        assert torch.equal(reference(out)(tokens).logits, reference(folder)(tokens).logits)


def test_bfloat16_folders_hold_rounded_weights(tmp_path: Path) -> None:
    """Exported from float32 and loaded as bfloat16, the forward pass runs in it and agrees to its precision."""
    folder, out = make_folder(tmp_path / "model", "qwen3"), tmp_path / "out"
    export(loaded(folder), out, folder, dtype=torch.bfloat16)
    rounded = {name: weight.to(torch.bfloat16) for name, weight in load_file(folder / "model.safetensors").items()}
    assert all(torch.equal(weight, rounded[name]) for name, weight in load_file(out / "model.safetensors").items())
    tokens = some_tokens(40)
    with torch.no_grad():
        exact = row_logits(loaded(out), tokens)
        low = row_logits(loaded(out, dtype=torch.bfloat16), tokens)
    assert low.dtype is torch.bfloat16
    assert (exact.log_softmax(-1) - low.float().log_softmax(-1)).abs().mean() < 0.05


def test_weights_are_drawn_where_none_are_loaded(tmp_path: Path) -> None:
    """The same seed gives the same model, norms are 1."""
    architecture = read_architecture(make_folder(tmp_path / "model", "qwen3"))
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(row_logits(build(architecture, Layout()), some_tokens(9)))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    assert drawn[0].shape == (9, VOCABULARY)


@pytest.mark.parametrize("kind", ["qwen3_tied", "qwen3_moe"])
def test_parameters_are_counted_from_the_configuration(kind: str, tmp_path: Path) -> None:
    """As transformers counts them."""
    folder = make_folder(tmp_path / "model", kind)
    assert parameters(read_architecture(folder)) == reference(folder).num_parameters()
