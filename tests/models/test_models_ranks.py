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

CASES: dict[str, tuple[str, Layout]] = {
    "tensor": ("qwen3", Layout(tensor=2)),
    "tensor_biases": ("qwen2", Layout(tensor=2)),
    "pipeline_experts": ("qwen3_moe", Layout(pipeline=2)),
    "pipeline_tied": ("llama_linear_tied", Layout(pipeline=2)),
    "context": ("qwen3", Layout(context=2)),
    "tensor_pipeline_tied": ("qwen3_tied", Layout(tensor=2, pipeline=2)),
}


def test_ranks_share_a_model_and_export_it(tmp_path: Path) -> None:
    """Every layout gives what one rank does. One test, since its processes are slow to start: they do all cases."""
    work = []
    for name, (kind, layout) in CASES.items():
        (tmp_path / name).mkdir()
        work.append((make_folder(tmp_path / name / "model", kind), layout, tmp_path / name))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    torch.multiprocessing.spawn(ranks_of, (port, work), nprocs=max(layout.ranks for _, layout in CASES.values()))
    for folder, layout, at in work:
        with world_of_one():
            one = computed(loaded(folder))
        ranks = [torch.load(at / f"rank{rank}.pt") for rank in range(layout.ranks)]
        compare_computed(at.name, layout, one, ranks)
        compare_folders(at.name, folder, at / "exported")


def compare_computed(case: str, layout: Layout, one: dict[str, Any], ranks: list[dict[str, Any]]) -> None:
    """Logits of one rank come out of all together, each with its part of the vocabulary or of the tokens."""
    logits = torch.cat([rank["logits"] for rank in ranks if rank], 0 if layout.context > 1 else -1)
    torch.testing.assert_close(logits[:, :VOCABULARY], one["logits"], atol=5e-6, rtol=1e-5, msg=case)
    assert (logits[:, VOCABULARY:] < -1e8).all(), case
    if layout.pipeline == 1:
        assert ranks[0]["gradients"].keys() == one["gradients"].keys()
        for weight, gradient in one["gradients"].items():
            theirs = ranks[0]["gradients"][weight]
            torch.testing.assert_close(theirs, gradient, atol=5e-5, rtol=1e-4, msg=f"{case}: {weight}")


def compare_folders(case: str, model: Path, out: Path) -> None:
    """Each weight to the last bit as it was loaded: without padding, and a tied embedding once."""
    original = load_file(model / "model.safetensors")
    exported: dict[str, Any] = {}
    for path in out.glob("*.safetensors"):
        exported |= load_file(path)
    assert exported.keys() == original.keys(), case
    assert all(torch.equal(exported[weight], original[weight]) for weight in original), case
