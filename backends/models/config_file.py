"""What `config.json` of a Hugging Face model says, and what of it is not supported."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ...errors import InputError
from .architecture import Architecture, Experts, Rope

CONFIG: Final = "config.json"

_KINDS: Final = ("llama", "qwen2", "qwen3", "qwen3_moe")
_ROPE_KINDS: Final = ("default", "linear", "llama3")

# What must not be set, by key: the values that leave it unset, and what it would mean.
_REFUSED: Final[Mapping[str, tuple[tuple[object, ...], str]]] = {
    "quantization_config": ((None,), "quantised weights cannot be trained: give the folder with full weights"),
    "use_sliding_window": ((None, False), "sliding windows are not supported: give a model with full attention"),
    "attention_bias": ((None, False), "biases in attention are not supported: give a model without"),
    "mlp_bias": ((None, False), "biases in the MLP are not supported: give a model without"),
    "hidden_act": ((None, "silu"), "only SwiGLU (silu) is supported"),
    "pretraining_tp": ((None, 1), "only 1 is supported: it changes how products are summed"),
    "decoder_sparse_step": ((None, 1), "only models with experts in every layer are supported"),
    "mlp_only_layers": ((None, []), "only models with experts in every layer are supported"),
    "is_decoder_only": ((None, True), "only decoders are supported"),
    "partial_rotary_factor": ((None, 1, 1.0), "rotary positions must turn the whole head"),
}


def read_config(folder: Path) -> dict[str, Any]:
    """Return the object in `config.json`.

    Raises:
        InputError: it cannot be read.
    """
    path = folder / CONFIG
    try:
        content = json.loads(path.read_text("utf-8"))
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise InputError(f"{path}: cannot be read ({why}); give the folder of a Hugging Face model") from error
    except ValueError as error:
        raise InputError(f"{path}: is not JSON ({error}); copy it again from where the model comes from") from error
    if not isinstance(content, dict):
        raise InputError(f"{path}: is not a JSON object; copy it again from where the model comes from")
    return content


def read_architecture(folder: Path) -> Architecture:
    """Read the architecture of the model in `folder` from its `config.json`.

    Raises:
        InputError: it is not there, is broken, or says something that is not supported.
    """
    return stated(folder / CONFIG, read_config(folder))


def stated(path: Path, config: Mapping[str, Any]) -> Architecture:
    """Return the architecture that `config`, read from `path`, states.

    Raises:
        InputError: a key is missing, has a value that makes no sense, or asks for what is not supported.
    """
    return _Reading(path, config).architecture()


class _Reading:
    def __init__(self, path: Path, config: Mapping[str, Any]) -> None:
        self._path = path
        self._config = config

    def architecture(self) -> Architecture:
        kind = self._config.get("model_type")
        if not isinstance(kind, str) or kind not in _KINDS:
            raise self._refusal("model_type", f"is not supported: give one of {', '.join(_KINDS)}")
        for key, (unset, remedy) in _REFUSED.items():
            if self._config.get(key) not in unset:
                raise self._refusal(key, remedy)
        self._check_layer_types()
        heads = self._count("num_attention_heads")
        hidden = self._count("hidden_size")
        kv_heads = self._count("num_key_value_heads", heads if kind == "llama" else None)
        if heads % kv_heads:
            raise self._refusal("num_key_value_heads", f"does not divide num_attention_heads {heads}")
        head_dim = self._count("head_dim", None if kind.startswith("qwen3") else hidden // heads)
        if head_dim % 2:
            raise self._refusal("head_dim", "is odd: rotary positions turn pairs of channels")
        return Architecture(
            model_type=kind,
            vocabulary=self._count("vocab_size"),
            layers=self._count("num_hidden_layers"),
            hidden_size=hidden,
            ffn_size=self._count("intermediate_size"),
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            norm_epsilon=self._positive("rms_norm_eps", 1e-6),
            rope=self._rope(),
            max_positions=self._count("max_position_embeddings", 32768 if kind != "llama" else 2048),
            tied=self._flag("tie_word_embeddings", False),
            qk_norm=kind in ("qwen3", "qwen3_moe"),
            qkv_bias=kind == "qwen2",
            experts=self._experts() if kind == "qwen3_moe" else None,
        )

    def _experts(self) -> Experts:
        named = "num_local_experts" if "num_local_experts" in self._config else "num_experts"  # transformers 5, 4
        number, chosen = self._count(named), self._count("num_experts_per_tok")
        if chosen > number:
            raise self._refusal("num_experts_per_tok", f"is above {named} {number}")
        return Experts(
            number=number,
            chosen=chosen,
            ffn_size=self._count("moe_intermediate_size"),
            normalized=self._flag("norm_topk_prob", False),
        )

    def _rope(self) -> Rope:
        """Read the rotary settings: `rope_parameters`, or `rope_theta` and `rope_scaling` as older files have them."""
        key = "rope_parameters" if self._config.get("rope_parameters") else "rope_scaling"
        given = self._config.get(key) or {}
        if not isinstance(given, dict):
            raise self._refusal(key, "is not an object")
        said = _Reading(self._path, {f"{key}.{name}": value for name, value in given.items()})
        theta = said._positive(f"{key}.rope_theta", self._positive("rope_theta", 10_000.0))
        named = "rope_type" if "rope_type" in given else "type"
        kind = given.get(named, "default")
        if kind not in _ROPE_KINDS:
            raise said._refusal(
                f"{key}.{named}", f"is not supported: give a model with one of {', '.join(_ROPE_KINDS)}"
            )
        if given.get("partial_rotary_factor", 1.0) != 1.0:
            raise said._refusal(f"{key}.partial_rotary_factor", "rotary positions must turn the whole head")
        if kind == "default":
            return Rope(theta=theta)
        factor = said._positive(f"{key}.factor")
        if kind == "linear":
            return Rope(theta=theta, kind="linear", factor=factor)
        low, high = said._positive(f"{key}.low_freq_factor"), said._positive(f"{key}.high_freq_factor")
        if high <= low:
            raise said._refusal(f"{key}.high_freq_factor", f"must be above low_freq_factor {low:g}")
        return Rope(
            theta=theta,
            kind="llama3",
            factor=factor,
            low_frequency_factor=low,
            high_frequency_factor=high,
            original_positions=said._count(f"{key}.original_max_position_embeddings"),
        )

    def _check_layer_types(self) -> None:
        types = self._config.get("layer_types")
        if types is not None and any(kind != "full_attention" for kind in types):
            raise self._refusal("layer_types", "sliding windows are not supported: give a model with full attention")

    def _count(self, key: str, default: int | None = None) -> int:
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self._refusal(key, "must be a whole number from 1")
        return value

    def _positive(self, key: str, default: float | None = None) -> float:
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
            raise self._refusal(key, "must be a number above 0")
        return float(value)

    def _flag(self, key: str, default: bool) -> bool:
        value = self._value(key, default)
        if not isinstance(value, bool):
            raise self._refusal(key, "must be true or false")
        return value

    def _value(self, key: str, default: object) -> object:
        value = self._config.get(key)
        if value is not None:
            return value
        if default is None:
            raise InputError(f"{self._path}: {key} is missing; copy it again from where the model comes from")
        return default

    def _refusal(self, key: str, why: str) -> InputError:
        value = json.dumps(self._config.get(key))
        shown = value if len(value) <= 60 else f"{value[:57]}..."
        return InputError(f"{self._path}: {key} is {shown}: {why}")
