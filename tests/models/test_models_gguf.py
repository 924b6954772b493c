"""A GGUF file, written by the package gguf as llama.cpp writes them, imported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="models need torch")
pytest.importorskip("transformers", reason="GGUF files are read by transformers")
gguf = pytest.importorskip("gguf", reason="GGUF files are read by transformers with gguf")
pytest.importorskip("accelerate", reason="GGUF files are read by transformers with accelerate")
from click.testing import CliRunner  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from transformers import AutoTokenizer  # noqa: E402

from gyre.backends.models.tiny import TinySettings, make_tiny_model  # noqa: E402
from gyre.cli import main  # noqa: E402

NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def write_gguf(source: Path, path: Path) -> None:
    """The model in `source` with the matrices of its MLPs quantised to Q8_0."""
    writer = gguf.GGUFWriter(path, "qwen3")
    config = json.loads((source / "config.json").read_text())
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_rope_freq_base(10_000.0)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    made = json.loads((source / "tokenizer.json").read_text())
    tokenizer = AutoTokenizer.from_pretrained(source)
    words = [tokenizer.convert_ids_to_tokens(index) or f"[unused{index}]" for index in range(config["vocab_size"])]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(words)
    writer.add_token_types([gguf.TokenType.NORMAL] * len(words))
    writer.add_token_merges([" ".join(merge) for merge in made["model"]["merges"]])
    writer.add_eos_token_id(config["eos_token_id"])
    for name, weight in load_file(source / "model.safetensors").items():
        _write_weight(writer, name, weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _write_weight(writer: object, name: str, weight: torch.Tensor) -> None:
    layer, _, rest = name.removeprefix("model.layers.").removesuffix(".weight").partition(".")
    known = name.removesuffix(".weight")
    to = NAMES[known] if known in NAMES else f"blk.{layer}.{NAMES[rest]}"
    values = weight.numpy()
    if rest.startswith("mlp."):
        kind = gguf.GGMLQuantizationType.Q8_0
        writer.add_tensor(f"{to}.weight", gguf.quants.quantize(values, kind), raw_dtype=kind)  # type: ignore[attr-defined]
    else:
        writer.add_tensor(f"{to}.weight", values)  # type: ignore[attr-defined]


def test_a_file_without_a_weight_is_refused(tmp_path: Path) -> None:
    """transformers would draw it at random."""
    make_tiny_model(tmp_path / "model", TinySettings(hidden=128, ffn=64, head_dim=128))
    weights = load_file(tmp_path / "model" / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, tmp_path / "model" / "model.safetensors")
    write_gguf(tmp_path / "model", tmp_path / "model.gguf")
    result = CliRunner().invoke(main, ["model", "import", str(tmp_path / "model.gguf"), str(tmp_path / "out")])
    assert result.exit_code == 2
    assert "has no model.layers.1.mlp.up_proj.weight that fits" in result.stderr
    assert not (tmp_path / "out").exists()


def test_weights_are_rounded_out_of_a_gguf_file(tmp_path: Path) -> None:
    """Plain weights to the last bit, quantised ones to a step of theirs; the tokenizer gives its ids."""
    make_tiny_model(tmp_path / "model", TinySettings(hidden=128, ffn=64, head_dim=128))
    write_gguf(tmp_path / "model", tmp_path / "model.gguf")
    result = CliRunner().invoke(
        main, ["model", "import", str(tmp_path / "model.gguf"), str(tmp_path / "out"), "--json"]
    )
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["rounded_out_from"] == "Q8_0"
    ours, theirs = (load_file(tmp_path / name / "model.safetensors") for name in ("out", "model"))
    assert ours.keys() == theirs.keys()
    for name, weight in theirs.items():
        step = weight.abs().max() / 127 if ".mlp." in name else 0.0
        assert (ours[name] - weight).abs().max() <= step, name
    texts = ["The quick brown fox", "def add(first, second)"]  # where Qwen's splitting and ours agree
    ids = [AutoTokenizer.from_pretrained(tmp_path / name)(texts)["input_ids"] for name in ("out", "model")]
    assert ids[0] == ids[1]
