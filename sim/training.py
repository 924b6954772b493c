"""Training time in closed form: micro-steps, the optimizer's update, a whole step.

A micro-step of T tokens whose paths hold P attended pairs, on g GPUs, takes

    overhead + w * (6 * N_active * T + 3 * f * P) / (g * F)

seconds: 6 FLOPs a parameter and token and 3 times the forward attention FLOPs f a pair for forward and backward
(Kaplan et al. 2020, section 2.1), w the work factor (1 without recomputed activations and old log-probs), F the
sustained FLOP/s of a GPU. F is peak * MFU, or follows from a measured rate r in tokens/s/GPU as 6 * N_active * r, so
that without pairs a micro-step takes overhead + w * T / (g * r).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import numpy.typing as npt

from .hardware_profile import HardwareProfile

F = TypeVar("F", float, npt.NDArray[Any])


def attended_pairs(path_tokens: Iterable[int]) -> float:
    """(query, key) pairs of causal attention over paths of these lengths: the sum of L*(L + 1)/2.

    Packed paths do not attend to each other, so a micro-step's pairs are the sum over its paths.
    """
    return float(sum(tokens * (tokens + 1) / 2 for tokens in path_tokens))


def sustained_flops(hardware: HardwareProfile) -> float:
    """FLOP/s of one GPU while it trains."""
    training = hardware.training
    if training.tokens_per_s_per_gpu is not None:
        return 6.0 * hardware.model.active_parameters * training.tokens_per_s_per_gpu
    assert training.peak_flops is not None  # the profile holds exactly one of the two
    assert training.mfu is not None
    return training.peak_flops * training.mfu


def training_work_gpu_s(hardware: HardwareProfile, tokens: F, pairs: F | float = 0.0) -> F:
    """GPU-seconds of forward and backward over `tokens` (a number or an array of them), without any overhead."""
    flops = 6.0 * hardware.model.active_parameters * tokens + 3.0 * hardware.training.attention_flops_per_pair * pairs
    return hardware.training.work_factor * flops / sustained_flops(hardware)


def micro_step_s(hardware: HardwareProfile, tokens: float, gpus: int, pairs: float = 0.0) -> float:
    """Seconds of one micro-step of `tokens` on `gpus` GPUs; `pairs` from `attended_pairs`, 0 to leave attention out.

    Raises ValueError where gpus < 1, tokens < 0 or pairs < 0.
    """
    if gpus < 1 or tokens < 0 or pairs < 0:
        raise ValueError(f"a micro-step needs gpus >= 1, tokens >= 0, pairs >= 0; got {gpus}, {tokens}, {pairs}")
    return hardware.training.micro_step_overhead_s + training_work_gpu_s(hardware, tokens, pairs) / gpus


def update_s(hardware: HardwareProfile) -> float:
    """Seconds of the optimizer's update, from the last gradient to new weights at the core; publishing not counted."""
    return hardware.training.update_s


def step_s(hardware: HardwareProfile, tokens: float, gpus: int, micro_steps: int = 1, pairs: float = 0.0) -> float:
    """Seconds of one step by itself: `micro_steps` equal micro-steps one after the other, then the update.

    Raises ValueError where micro_steps < 1 or as `micro_step_s` does.
    """
    if micro_steps < 1:
        raise ValueError(f"a step needs at least one micro-step, got {micro_steps}")
    one_s = micro_step_s(hardware, tokens / micro_steps, gpus, pairs / micro_steps)
    return micro_steps * one_s + update_s(hardware)
