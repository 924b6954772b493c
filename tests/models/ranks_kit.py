"""What spawned ranks of a cell compute, for tests that compare it with one rank."""

from __future__ import annotations

import traceback
import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from model_kit import loaded, some_tokens

from gyre.backends.models.attention import PackedAttention
from gyre.backends.models.exporting import export
from gyre.backends.models.forward import context_part, forward_stage
from gyre.backends.models.gathering import gathered
from gyre.backends.models.layout import Layout
from gyre.backends.models.model import Model
from gyre.backends.models.world import join_world, leave_world

LENGTHS = (23, 1, 40)  # of the rows of the micro-step


def micro_step() -> tuple[torch.Tensor, torch.Tensor, PackedAttention]:
    """Rows of random tokens."""
    positions = torch.cat([torch.arange(length) for length in LENGTHS])
    starts = torch.tensor([0, *LENGTHS]).cumsum(0)
    return some_tokens(sum(LENGTHS), 3), positions, PackedAttention.of_rows(starts)


def ranks_of(rank: int, port: int, cases: list[tuple[Path, Layout, Path]]) -> None:
    """Be rank `rank` in one world after the other; for each case export the model and save what was computed."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    timeout = timedelta(seconds=120)
    store = dist.TCPStore("127.0.0.1", port, is_master=rank == 0, timeout=timeout, wait_for_workers=False)
    for number, (folder, layout, out) in enumerate(cases):
        if rank >= layout.ranks:
            continue
        join_world(layout, rank=rank, store=dist.PrefixStore(str(number), store), timeout_s=120)
        try:
            model = loaded(folder, layout)
            export(model, out / "exported", folder, shard_bytes=40_000)
            torch.save(computed(model), out / f"rank{rank}.pt")
            dist.barrier()
        except BaseException:
            (out / f"failed{rank}.txt").write_text(traceback.format_exc())
            raise
        finally:
            leave_world()


def computed(model: Model) -> dict[str, Any]:
    """Logits of this rank and, where the pipeline has one stage, gradients of its weights."""
    tokens, positions, attention = micro_step()
    hidden = None
    if not model.is_first:
        hidden = torch.empty(len(tokens), 1, model.architecture.hidden_size)
        dist.recv(hidden, dist.get_rank() - model.layout.tensor)
    out = forward_stage(model, tokens, positions, attention, hidden)
    if not model.is_last:
        dist.send(out.detach(), dist.get_rank() + model.layout.tensor)
        return {}
    part = context_part(model, len(tokens))
    saved: dict[str, Any] = {"logits": out.detach(), "part": (part.begin, part.end)}
    if model.layout.pipeline == 1:
        saved["gradients"] = gradients(model, out)
    return saved


def gradients(model: Model, logits: torch.Tensor) -> dict[str, torch.Tensor]:
    """Gradients by names on the hub, gathered on rank 0 as weights are: of the log-probabilities of random targets."""
    from megatron.core.tensor_parallel import vocab_parallel_cross_entropy

    part = context_part(model, sum(LENGTHS))
    targets = some_tokens(sum(LENGTHS), 4)[part.begin : part.end]
    vocab_parallel_cross_entropy(logits[:, None].float().clone(), targets[:, None]).sum().backward()
    for name, weight in model.network.named_parameters():
        gradient = weight.grad
        if model.layout.context > 1:
            dist.all_reduce(gradient)
        if model.layout.tensor > 1 and ("q_layernorm" in name or "k_layernorm" in name):
            dist.all_reduce(gradient)  # each rank has those of its heads; finalize_model_grads sums them in training
        weight.data = gradient
    return {name: weight.clone() for name, weight in gathered(model)}
