"""All of a pass lies on the model's device: PyTorch's `meta` device, which mixes with no other, stands for a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="models need torch")
pytest.importorskip("transformers", reason="models are made with transformers")
pytest.importorskip("megatron.core", reason="models are built with megatron-core: pip install 'gyre[real]'")
from model_kit import loaded, make_folder  # noqa: E402

from gyre.backends.models.attention import PackedAttention  # noqa: E402
from gyre.backends.models.forward import forward_logits  # noqa: E402
from gyre.backends.models.world import world_of_one  # noqa: E402

META = torch.device("meta")


@pytest.fixture(scope="module", autouse=True)
def one_world() -> Iterator[None]:
    with world_of_one():
        yield


@pytest.mark.parametrize("kind", ["qwen3", "llama_llama3", "qwen2"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_pass_stays_on_the_models_device(tmp_path: Path, kind: str, dtype: torch.dtype) -> None:
    """Forward and backward of a tree whose structure came from the host, as a micro-step's does."""
    model = loaded(make_folder(tmp_path / "model", kind), dtype=dtype)
    model.network.to(META)
    model = replace(model, device=META)
    attention = PackedAttention.of_tree(torch.tensor([9, 9, 9, 6, 6, 6, 9, 9, 9]))
    tokens, positions = torch.arange(9), torch.tensor([0, 1, 2, 3, 4, 5, 3, 4, 5])
    logits = forward_logits(model, tokens, positions, attention)
    assert (logits.device, logits.dtype) == (META, dtype)
    logits.float().logsumexp(-1).sum().backward()
    for name, parameter in model.network.named_parameters():
        assert parameter.grad is not None, name
        assert (parameter.grad.device, parameter.grad.dtype) == (META, dtype), name
