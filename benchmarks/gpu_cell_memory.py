"""Checks of what a trainer's memory and speed are: given away and taken again, trees against rows."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from gpu_cell_models import Site, forked, half_billion, scaled_down, weighted
from gpu_cell_runner import Sheet
from gpu_cell_trainer import SETTINGS
from torch import Tensor

from gyre.backends.models.layout import Layout
from gyre.backends.models.model import build
from gyre.backends.models.world import world_of_one
from gyre.backends.models.writing import DTYPES
from gyre.backends.training.group_micro_steps import packed
from gyre.backends.training.trainer import Trainer
from gyre.trajectory.packing import MicroStep
from gyre.trajectory.samples import Samples

ROUNDS: Final = 5
MOST_TOKENS: Final = 65_536  # of a micro-step, expanded; halved where memory is short
_CPU_TOKENS: Final = 2_048
_LEAST_TOKENS: Final = 8_192
_BRANCHES: Final = 8
# A layer's activations are computed again in the backward pass: 64k tokens would take 120 GiB of them.
_RECOMPUTE: Final = {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}


def used_bytes() -> int:
    """GPU memory that is not free, of all processes; 0 without a GPU. Waits for the GPU."""
    if not torch.cuda.is_available():
        return 0
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return total - free


def seconds_of(work: Callable[[], object]) -> float:
    """Seconds of a call, the GPU's work included."""
    used_bytes()
    begin_s = time.perf_counter()
    work()
    used_bytes()
    return time.perf_counter() - begin_s


@contextmanager
def random_trainer(site: Site, dtype: torch.dtype, attention: str = "sdpa") -> Iterator[Trainer]:
    """A trainer of random weights: half a billion on a GPU, few on a CPU."""
    torch.manual_seed(0)
    options: dict[str, Any] = dict(_RECOMPUTE) if site.on_gpu else {}
    architecture = half_billion() if site.on_gpu else scaled_down()
    with world_of_one(site.place):
        yield Trainer(build(architecture, Layout(), site.place, dtype, attention=attention, **options), SETTINGS)


def forked_tokens(trainer: Trainer, tokens: int) -> Samples:
    """Samples of so many tokens, expanded: three quarters of each row is a prompt that four rows share."""
    row = tokens // _BRANCHES
    return weighted(forked(trainer.model.architecture.vocabulary, prompt=row * 3 // 4, own=row // 8, output=row // 8))


def memory(site: Site, sheet: Sheet, precision: str) -> None:
    """Release and restore: bytes, seconds, nothing changed, and an update after them like one without."""
    dtype = DTYPES[precision]
    with random_trainer(site, dtype) as trainer:
        step = packed(forked_tokens(trainer, 4_096 if site.on_gpu else _CPU_TOKENS), "trees")
        gradient, _ = trainer.gradient(step)
        trainer.update(gradient.clone(), 2)
        kept = [value.cpu().clone() for value in _held(trainer)]
        awake_bytes = used_bytes()
        size = len(trainer.weights)
        sheet.note(weights=size, state_bytes=_state_bytes(size, dtype), used_while_training_bytes=awake_bytes)
        released, taken, asleep_bytes = [], [], 0
        for _ in range(ROUNDS):
            released.append(seconds_of(trainer.release))
            asleep_bytes = used_bytes()
            taken.append(seconds_of(trainer.restore))
        sheet.note(used_after_release_bytes=asleep_bytes, used_after_restore_bytes=used_bytes())
        sheet.note(release_s=statistics.median(released), restore_s=statistics.median(taken))
        if site.on_gpu:
            sheet.holds("release_frees_the_state", awake_bytes - asleep_bytes >= 0.95 * _state_bytes(size, dtype))
        sheet.holds("bit_equal_after", all(torch.equal(a.cpu(), b) for a, b in zip(_held(trainer), kept, strict=True)))
        trainer.update(gradient.clone(), 2)
        after = trainer.weights.values.cpu().clone()
        trainer.load(kept[0], trainer.version)
        moments = dict(zip(trainer.optimizer.state(), kept[1:], strict=True))
        trainer.optimizer.restore(moments, 1)
        trainer.update(gradient.clone(), 2)
        sheet.holds("update_bit_equal", torch.equal(trainer.weights.values.cpu(), after))


def _held(trainer: Trainer) -> list[Tensor]:
    return [trainer.weights.values, *trainer.optimizer.state().values()]


def _state_bytes(size: int, dtype: torch.dtype) -> int:
    """Master weights, two moments, and the parameters where they are not the masters."""
    return size * (12 + (0 if dtype is torch.float32 else dtype.itemsize))


def speed(site: Site, sheet: Sheet, attention: str) -> None:
    """Micro-steps as trees and as rows, in turn: seconds, tokens a second, and peak memory. Weights are random."""
    tokens = MOST_TOKENS if site.on_gpu else _CPU_TOKENS
    with random_trainer(site, torch.bfloat16, attention) as trainer:
        sheet.note(weights=len(trainer.weights), weights_are="random", attention=attention)
        while True:
            try:
                _speed_of(trainer, sheet, tokens)
                return
            except torch.OutOfMemoryError:
                if tokens <= _LEAST_TOKENS:
                    raise
            trainer.weights.take_gradient()
            torch.cuda.empty_cache()
            sheet.note(**{f"memory_is_short_for_{tokens}_tokens": True})
            tokens //= 2


def _speed_of(trainer: Trainer, sheet: Sheet, tokens: int) -> None:
    samples = forked_tokens(trainer, tokens)
    steps = {packing: packed(samples, packing) for packing in ("rows", "trees")}  # type: ignore[arg-type]
    seconds: dict[str, list[float]] = {packing: [] for packing in steps}
    for turn in range(4):
        for packing, step in steps.items():
            spent = _timed(trainer, sheet, packing, step)
            if turn:  # the first finds kernels, compiles them and takes memory
                seconds[packing].append(spent)
    expanded = len(steps["rows"])
    sheet.note(expanded_tokens=expanded, tree_tokens=len(steps["trees"]))
    middle = {packing: statistics.median(spent) for packing, spent in seconds.items()}
    for packing, spent in middle.items():
        sheet.note(**{f"{packing}_s": spent, f"{packing}_expanded_tokens_per_s": expanded / spent})
    sheet.note(trees_over_rows_speed=middle["rows"] / middle["trees"], tokens_saved=expanded / len(steps["trees"]))


def _timed(trainer: Trainer, sheet: Sheet, packing: str, step: MicroStep) -> float:
    on_gpu = trainer.model.device.type == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    spent = seconds_of(lambda: trainer.gradient(step))
    if on_gpu:
        sheet.note(**{f"{packing}_peak_bytes": torch.cuda.max_memory_allocated()})
    return spent
