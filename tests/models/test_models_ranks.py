"""Two and four ranks over gloo against one: logits, gradients, and the folder that they export together."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="models need torch")
pytest.importorskip("transformers", reason="models are made with transformers")
pytest.importorskip("megatron.core", reason="models are built with megatron-core: pip install 'gyre[real]'")
from model_kit import VOCABULARY, loaded, make_folder  # noqa: E402
from ranks_kit import computed, ranks_of  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

from gyre.backends.models.layout import Layout  # noqa: E402
from gyre.backends.models.world import world_of_one  # noqa: E402

Case = tuple[str, Layout]
CASES: dict[str, Case] = {
    "tensor": ("qwen3", Layout(tensor=2)),
    "tensor_biases": ("qwen2", Layout(tensor=2)),
    "pipeline_experts": ("qwen3_moe", Layout(pipeline=2)),
    "pipeline_tied": ("llama_linear_tied", Layout(pipeline=2)),
    "context": ("qwen3", Layout(context=2)),
    "tensor_pipeline_tied": ("qwen3_tied", Layout(tensor=2, pipeline=2)),
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder for each case: the model, and what ranks computed and exported. Processes are spawned once for all."""
    at = tmp_path_factory.mktemp("ranks")
    work = []
    for name, (kind, layout) in CASES.items():
        (at / name).mkdir()
        work.append((make_folder(at / name / "model", kind), layout, at / name))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    torch.multiprocessing.spawn(ranks_of, (port, work), nprocs=max(layout.ranks for _, layout in CASES.values()))
    return {name: at / name for name in CASES}


def alone(folder: Path) -> dict[str, Any]:
    with world_of_one():
        return computed(loaded(folder / "model"))


def together(folder: Path, layout: Layout) -> list[dict[str, Any]]:
    return [torch.load(folder / f"rank{rank}.pt") for rank in range(layout.ranks)]


@pytest.mark.parametrize("name", CASES)
def test_ranks_share_a_model(results: dict[str, Path], name: str) -> None:
    """Logits of one rank come out of all together, each with its part of the vocabulary or of the tokens."""
    layout = CASES[name][1]
    one, ranks = alone(results[name]), together(results[name], layout)
    logits = torch.cat([rank["logits"] for rank in ranks if rank], 0 if layout.context > 1 else -1)
    torch.testing.assert_close(logits[:, :VOCABULARY], one["logits"], atol=5e-6, rtol=1e-5)
    assert (logits[:, VOCABULARY:] < -1e8).all()
    if layout.pipeline == 1:
        assert ranks[0]["gradients"].keys() == one["gradients"].keys()
        for weight, gradient in one["gradients"].items():
            torch.testing.assert_close(ranks[0]["gradients"][weight], gradient, atol=5e-5, rtol=1e-4, msg=weight)


@pytest.mark.parametrize("name", CASES)
def test_ranks_export_one_folder(results: dict[str, Path], name: str) -> None:
    """Each weight to the last bit as it was loaded: without padding, and a tied embedding once."""
    original = load_file(results[name] / "model" / "model.safetensors")
    exported: dict[str, Any] = {}
    for path in (results[name] / "exported").glob("*.safetensors"):
        exported |= load_file(path)
    assert exported.keys() == original.keys()
    assert all(torch.equal(exported[weight], original[weight]) for weight in original)
