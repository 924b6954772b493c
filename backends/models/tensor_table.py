"""Every weight of a model: its name in megatron-core, its names and shapes on the hub, and how ranks share it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from .architecture import Architecture
from .layout import Layout

Shape = tuple[int, ...]


class Joined(StrEnum):
    """How one weight of megatron-core is made of several of the hub."""

    ALONE = "alone"
    QKV = "qkv"  # for each KV head: its queries, its key, its value
    STACKED = "stacked"  # one above the other


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A line of the table; `{layer}` and `{expert}` stand for numbers, in a shape letters for sizes (see `_sizes`)."""

    core: str
    hub: tuple[str, ...]
    shapes: tuple[str, ...]  # of the hub's weights, as letters
    joined: Joined = Joined.ALONE
    split: int | None = None  # dimension of the hub's weights that tensor ranks share out


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """A weight of one pipeline stage."""

    core: str  # its name in the stage's network
    hub: tuple[str, ...]
    shapes: tuple[Shape, ...]  # whole, on the hub
    joined: Joined
    split: int | None
    padded_rows: int | None  # rows that the vocabulary is filled up to, before it is split
    stage: int
    is_copy: bool = False  # of one that another stage holds too


_EMBEDDING: Final = Rule(
    core="embedding.word_embeddings.weight", hub=("model.embed_tokens.weight",), shapes=("VH",), split=0
)
_HEAD: Final = Rule(core="output_layer.weight", hub=("lm_head.weight",), shapes=("VH",), split=0)
_LAST_NORM: Final = Rule(core="decoder.final_layernorm.weight", hub=("model.norm.weight",), shapes=("H",))

_ATTENTION: Final = (
    Rule(core="input_layernorm.weight", hub=("input_layernorm.weight",), shapes=("H",)),
    Rule(
        core="self_attention.linear_qkv.weight",
        hub=("self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"),
        shapes=("QH", "KH", "KH"),
        joined=Joined.QKV,
        split=0,
    ),
    Rule(core="self_attention.linear_proj.weight", hub=("self_attn.o_proj.weight",), shapes=("HQ",), split=1),
    Rule(core="pre_mlp_layernorm.weight", hub=("post_attention_layernorm.weight",), shapes=("H",)),
)
_QKV_BIAS: Final = (
    Rule(
        core="self_attention.linear_qkv.bias",
        hub=("self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias"),
        shapes=("Q", "K", "K"),
        joined=Joined.QKV,
        split=0,
    ),
)
_QK_NORM: Final = (
    Rule(core="self_attention.q_layernorm.weight", hub=("self_attn.q_norm.weight",), shapes=("D",)),
    Rule(core="self_attention.k_layernorm.weight", hub=("self_attn.k_norm.weight",), shapes=("D",)),
)
_MLP: Final = (
    Rule(
        core="mlp.linear_fc1.weight",
        hub=("mlp.gate_proj.weight", "mlp.up_proj.weight"),
        shapes=("FH", "FH"),
        joined=Joined.STACKED,
        split=0,
    ),
    Rule(core="mlp.linear_fc2.weight", hub=("mlp.down_proj.weight",), shapes=("HF",), split=1),
)
_ROUTER: Final = (Rule(core="mlp.router.weight", hub=("mlp.gate.weight",), shapes=("NH",)),)
_EXPERT: Final = (
    Rule(
        core="mlp.experts.local_experts.{expert}.linear_fc1.weight",
        hub=("mlp.experts.{expert}.gate_proj.weight", "mlp.experts.{expert}.up_proj.weight"),
        shapes=("EH", "EH"),
        joined=Joined.STACKED,
        split=0,
    ),
    Rule(
        core="mlp.experts.local_experts.{expert}.linear_fc2.weight",
        hub=("mlp.experts.{expert}.down_proj.weight",),
        shapes=("HE",),
        split=1,
    ),
)


def weights(architecture: Architecture, layout: Layout) -> Iterator[Weight]:
    """Go through all weights of all stages, in the order in which the hub's folders have them."""
    sizes = _sizes(architecture)
    rows, last = layout.padded_vocabulary(architecture), layout.pipeline - 1
    yield _weight(_EMBEDDING, sizes, 0, rows=rows)
    held = architecture.layers // layout.pipeline
    for layer in range(architecture.layers):
        core, hub = f"decoder.layers.{layer % held}.", f"model.layers.{layer}."
        for rule in _of_layer(architecture):
            yield _weight(rule, sizes, layer // held, core, hub)
    yield _weight(_LAST_NORM, sizes, last)
    if not architecture.tied:
        yield _weight(_HEAD, sizes, last, rows=rows)
    elif last:
        shared = Rule(core=_HEAD.core, hub=_EMBEDDING.hub, shapes=_EMBEDDING.shapes, split=0)
        yield _weight(shared, sizes, last, rows=rows, is_copy=True)


def hub_shapes(architecture: Architecture) -> dict[str, Shape]:
    """Return the shape of every weight that a folder of this architecture holds, by its name on the hub."""
    return {
        name: shape
        for weight in weights(architecture, Layout())
        for name, shape in zip(weight.hub, weight.shapes, strict=True)
    }


def parameters(architecture: Architecture) -> int:
    """Return the number of weights, a tied output layer counted once."""
    return sum(math.prod(shape) for shape in hub_shapes(architecture).values())


def active_parameters(architecture: Architecture) -> int:
    """Return the number of weights that a token meets: of the experts, only those that are chosen."""
    experts = architecture.experts
    idle = 0 if experts is None else (experts.number - experts.chosen) * 3 * architecture.hidden_size * experts.ffn_size
    return parameters(architecture) - architecture.layers * idle


def _of_layer(architecture: Architecture) -> Iterator[Rule]:
    yield from _ATTENTION
    if architecture.qkv_bias:
        yield from _QKV_BIAS
    if architecture.qk_norm:
        yield from _QK_NORM
    if architecture.experts is None:
        yield from _MLP
        return
    yield from _ROUTER
    for expert in range(architecture.experts.number):
        for rule in _EXPERT:
            yield Rule(
                core=rule.core.format(expert=expert),
                hub=tuple(name.format(expert=expert) for name in rule.hub),
                shapes=rule.shapes,
                joined=rule.joined,
                split=rule.split,
            )


def _weight(
    rule: Rule,
    sizes: Mapping[str, int],
    stage: int,
    core: str = "",
    hub: str = "",
    *,
    rows: int | None = None,
    is_copy: bool = False,
) -> Weight:
    return Weight(
        core=core + rule.core,
        hub=tuple(hub + name for name in rule.hub),
        shapes=tuple(tuple(sizes[letter] for letter in shape) for shape in rule.shapes),
        joined=rule.joined,
        split=rule.split,
        padded_rows=rows,
        stage=stage,
        is_copy=is_copy,
    )


def _sizes(architecture: Architecture) -> Mapping[str, int]:
    experts = architecture.experts
    return MappingProxyType(
        {
            "V": architecture.vocabulary,
            "H": architecture.hidden_size,
            "Q": architecture.heads * architecture.head_dim,
            "K": architecture.kv_heads * architecture.head_dim,
            "D": architecture.head_dim,
            "F": architecture.ffn_size,
            "N": experts.number if experts else 0,
            "E": experts.ffn_size if experts else 0,
        }
    )
