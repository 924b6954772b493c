"""megatron-core's mixture of experts, with a router that stays where its weights are."""

from __future__ import annotations

from typing import Any

from megatron.core.models.gpt.moe_module_specs import get_moe_module_spec
from megatron.core.transformer.moe.router import TopKRouter
from torch import Tensor
from torch.nn.functional import linear


class PlacedRouter(TopKRouter):  # type: ignore[misc]  # megatron-core has no types
    """The router of megatron-core, which on a CPU would move its weights to a GPU at the first token.

    Its own product of logits cannot run without TransformerEngine (megatron-core 0.16.1 asks for a name never set).
    """

    def gating(self, input: Tensor) -> Tensor:
        """Return each token's logits of the experts."""
        return linear(input, self.weight)


def experts_spec(number: int) -> Any:
    """Return the spec of a layer's experts, computed one after the other with plain matrix products."""
    spec = get_moe_module_spec(use_te=False, num_experts=number, moe_grouped_gemm=False)
    spec.submodules.router = PlacedRouter
    return spec
