"""Random models of transformers in folders, and what a megatron-core model makes of a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from gyre.backends.models.attention import PackedAttention
from gyre.backends.models.config_file import read_architecture
from gyre.backends.models.forward import forward_logits
from gyre.backends.models.layout import Layout
from gyre.backends.models.loading import load
from gyre.backends.models.model import Model, build

VOCABULARY = 301  # odd: with two tensor ranks it is filled up
_SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
}
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 5e5,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
_EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24}

KINDS: dict[str, dict[str, Any]] = {
    "qwen3": {"model_type": "qwen3"},
    "qwen3_tied": {"model_type": "qwen3", "tie_word_embeddings": True},
    "llama": {"model_type": "llama"},
    "llama_llama3": {"model_type": "llama", "rope_parameters": _LLAMA3},
    "llama_linear_tied": {
        "model_type": "llama",
        "rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0},
        "tie_word_embeddings": True,
    },
    "qwen2": {"model_type": "qwen2", "hidden_size": 64},
    "qwen3_moe": {"model_type": "qwen3_moe", "norm_topk_prob": True, **_EXPERTS},
    "qwen3_moe_unnormalized": {"model_type": "qwen3_moe", "norm_topk_prob": False, **_EXPERTS},
}


def make_folder(folder: Path, kind: str) -> Path:
    """Write a random model of that kind, with norms that are not 1, and a tokenizer's file that says nothing."""
    settings = {**_SHAPE, **KINDS[kind]}
    if kind == "qwen2":
        del settings["head_dim"]
    torch.manual_seed(7)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**settings)).float()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.15) if parameter.dim() > 1 else parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder)
    (folder / "tokenizer_config.json").write_text('{"model_max_length": 256}')
    return folder


def reference(folder: Path) -> Any:
    """The model as transformers loads it."""
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def loaded(folder: Path, layout: Layout | None = None, **options: Any) -> Model:
    """The model as gyre loads it; the process is in the layout's world."""
    model = build(read_architecture(folder), layout or Layout(), initialize=False, **options)
    load(model, folder)
    return model


def row_logits(model: Model, tokens: torch.Tensor) -> torch.Tensor:
    """Logits of one row."""
    row = PackedAttention.of_rows(torch.tensor([0, len(tokens)]))
    return forward_logits(model, tokens, torch.arange(len(tokens)), row)


def some_tokens(number: int, seed: int = 0) -> torch.Tensor:
    """Random ids."""
    return torch.randint(0, VOCABULARY, (number,), generator=torch.Generator().manual_seed(seed))
