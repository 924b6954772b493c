"""A megatron-core model from an architecture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.transformer.transformer_config import TransformerConfig
from torch.nn import functional

from .architecture import Architecture
from .core_attention import core_attention
from .experts import experts_spec
from .layout import Layout
from .quiet import quiet_warnings
from .rotary import PositionRotary


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Model:
    """A rank's part of a model."""

    network: GPTModel
    architecture: Architecture
    layout: Layout
    device: torch.device
    dtype: torch.dtype
    tensor_rank: int
    stage: int  # of the pipeline, from 0

    @property
    def is_first(self) -> bool:
        """Whether this stage embeds tokens."""
        return self.stage == 0

    @property
    def is_last(self) -> bool:
        """Whether this stage makes logits."""
        return self.stage == self.layout.pipeline - 1

    @property
    def layers(self) -> range:
        """Numbers of this stage's layers in the whole model."""
        held = self.architecture.layers // self.layout.pipeline
        return range(self.stage * held, (self.stage + 1) * held)


def build(
    architecture: Architecture,
    layout: Layout,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    *,
    attention: str = "sdpa",
    initialize: bool = True,
    **options: Any,
) -> Model:
    """Make this rank's part of the model, on `device`; the process must have joined the layout's world.

    Args:
        architecture: what to build.
        layout: sizes of the cell's groups.
        device: "cpu" or this rank's GPU.
        dtype: of weights and activations, float32 or bfloat16.
        attention: a name of `gyre.backends.models.core_attention.CORE_ATTENTIONS`, or `module:Class`.
        initialize: draw random weights from torch's generator; False where `load` fills all of them.
        options: more for megatron-core's TransformerConfig, such as `recompute_granularity`.

    Raises:
        InputError: the layout does not fit the model, or there is no such attention.
    """
    layout.check(architecture)
    device = torch.device(device)
    with quiet_warnings():
        config = _config(architecture, layout, device, dtype, {"perform_initialization": initialize, **options})
        network = _network(architecture, layout, config, attention)
    network.rotary_pos_emb = PositionRotary(architecture.rope, architecture.head_dim)
    network.to(device, dtype)  # norms are made in float32
    if initialize:
        _tie_stages(network, architecture, layout)
    return Model(
        network=network,
        architecture=architecture,
        layout=layout,
        device=device,
        dtype=dtype,
        tensor_rank=parallel_state.get_tensor_model_parallel_rank(),
        stage=parallel_state.get_pipeline_model_parallel_rank(),
    )


class _Network(GPTModel):  # type: ignore[misc]  # megatron-core has no types
    def _is_in_embd_group(self) -> bool:
        """Answer the constructor, which would copy a tied embedding to the last stage on CUDA: see `_tie_stages`."""
        return False


def _network(architecture: Architecture, layout: Layout, config: TransformerConfig, attention: str) -> _Network:
    return _Network(
        config=config,
        transformer_layer_spec=_layer_spec(architecture, attention),
        vocab_size=layout.padded_vocabulary(architecture),
        max_sequence_length=architecture.max_positions,
        pre_process=parallel_state.is_pipeline_first_stage(),
        post_process=parallel_state.is_pipeline_last_stage(),
        position_embedding_type="rope",
        share_embeddings_and_output_weights=architecture.tied,
    )


def _tie_stages(network: GPTModel, architecture: Architecture, layout: Layout) -> None:
    """Give the last stage of a pipeline the embedding that its output layer shares."""
    if architecture.tied and layout.pipeline > 1 and (network.pre_process or network.post_process):
        weight = network.shared_embedding_or_output_weight()
        dist.all_reduce(weight.data, group=parallel_state.get_embedding_group())


def _layer_spec(architecture: Architecture, attention: str) -> Any:
    spec = get_gpt_layer_local_spec(qk_layernorm=architecture.qk_norm, normalization="RMSNorm")
    spec.submodules.self_attention.submodules.core_attention = core_attention(attention)
    if architecture.experts is not None:
        spec.submodules.mlp = experts_spec(architecture.experts.number)
    return spec


def _config(
    architecture: Architecture, layout: Layout, device: torch.device, dtype: torch.dtype, options: dict[str, Any]
) -> TransformerConfig:
    values: dict[str, Any] = {
        "num_layers": architecture.layers,
        "hidden_size": architecture.hidden_size,
        "ffn_hidden_size": architecture.ffn_size,
        "num_attention_heads": architecture.heads,
        "num_query_groups": architecture.kv_heads,
        "kv_channels": architecture.head_dim,
        "normalization": "RMSNorm",
        "layernorm_epsilon": architecture.norm_epsilon,
        "qk_layernorm": architecture.qk_norm,
        "add_qkv_bias": architecture.qkv_bias,
        "add_bias_linear": False,
        "gated_linear_unit": True,
        "activation_func": functional.silu,
        "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
        "tensor_model_parallel_size": layout.tensor,
        "pipeline_model_parallel_size": layout.pipeline,
        "context_parallel_size": layout.context,
        "expert_model_parallel_size": layout.expert,
        "params_dtype": dtype,
        "pipeline_dtype": dtype,
        "bf16": dtype is torch.bfloat16,
        "use_cpu_initialization": device.type == "cpu",
        # Fused kernels need CUDA, Apex or TransformerEngine.
        "masked_softmax_fusion": False,
        "bias_activation_fusion": False,
        "bias_dropout_fusion": False,
        "apply_rope_fusion": False,
        "gradient_accumulation_fusion": False,
        "persist_layer_norm": False,
        "async_tensor_model_parallel_allreduce": False,
    }
    if architecture.experts is not None:
        values |= {
            "num_moe_experts": architecture.experts.number,
            "moe_router_topk": architecture.experts.chosen,
            "moe_ffn_hidden_size": architecture.experts.ffn_size,
            "moe_router_pre_softmax": not architecture.experts.normalized,
            "moe_router_load_balancing_type": "none",
            "moe_token_dispatcher_type": "allgather",  # the other keeps CUDA streams
            "moe_grouped_gemm": False,
        }
    return TransformerConfig(**(values | options))
