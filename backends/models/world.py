"""The processes that share one model: a torch.distributed world for each cell, and megatron-core's groups in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.tensor_parallel.random import initialize_rng_tracker, model_parallel_cuda_manual_seed

from ...errors import InputError
from .layout import Layout

WORLD_TIMEOUT_S: Final = 600.0


def join_world(
    layout: Layout,
    *,
    rank: int = 0,
    store: Any = None,
    device: torch.device | str = "cpu",
    seed: int = 0,
    timeout_s: float = WORLD_TIMEOUT_S,
) -> None:
    """Enter the cell's world as `rank` of `layout.ranks` and set up megatron-core's groups; blocks until all are there.

    A process is in one world at a time. It is over gloo on CPU, over NCCL on GPU.

    Args:
        layout: sizes of the groups.
        rank: from 0 to `layout.ranks` - 1.
        store: where the ranks meet, a `torch.distributed.Store` such as TCPStore; None for a world of one.
        device: this rank's, as `build` gets it.
        seed: of dropout and of initial weights on GPU.
        timeout_s: of every collective: a rank that dies is noticed after this long, at the latest.

    Raises:
        InputError: `rank` is out of range, or `store` is missing.
    """
    if not 0 <= rank < layout.ranks:
        raise InputError(f"rank is {rank}: the layout has ranks 0 to {layout.ranks - 1}")
    if store is None:
        if layout.ranks > 1:
            raise InputError(f"the layout has {layout.ranks} ranks: give a store where they meet")
        store = dist.HashStore()  # type: ignore[attr-defined]
    on_gpu = torch.device(device).type == "cuda"
    if on_gpu:
        torch.cuda.set_device(device)
    timeout = timedelta(seconds=timeout_s)
    dist.init_process_group(
        "nccl" if on_gpu else "gloo", store=store, rank=rank, world_size=layout.ranks, timeout=timeout
    )
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=layout.tensor,
        pipeline_model_parallel_size=layout.pipeline,
        context_parallel_size=layout.context,
        expert_model_parallel_size=layout.expert,
        distributed_timeout_minutes=max(1, round(timeout_s / 60)),  # groups do not inherit the world's
    )
    # The tracker of the inference engine forks nothing, and so needs no CUDA generator. Dropout is 0 in either case.
    initialize_rng_tracker(inference_rng_tracker=not on_gpu, force_reset=True)
    if on_gpu:
        model_parallel_cuda_manual_seed(seed)


def leave_world() -> None:
    """Take the groups down; a process without any: nothing happens."""
    if dist.is_initialized():
        parallel_state.destroy_model_parallel()
        dist.destroy_process_group()


@contextmanager
def world_of_one(device: torch.device | str = "cpu") -> Iterator[None]:
    """Be a world of one rank for as long as the context lasts."""
    join_world(Layout(), device=device)
    try:
        yield
    finally:
        leave_world()
