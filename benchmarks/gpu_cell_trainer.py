"""Checks of the trainer: what it computes on the device against float32 on a CPU, and packings against each other."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import torch
from gpu_cell_models import Site, forked, weighted
from gpu_cell_runner import Sheet
from torch import Tensor

from gyre.backends.models.config_file import read_architecture
from gyre.backends.models.layout import Layout
from gyre.backends.models.loading import load
from gyre.backends.models.model import build
from gyre.backends.models.world import world_of_one
from gyre.backends.training.cell import LocalCell
from gyre.backends.training.checkpoint import Checkpoints, CheckpointState
from gyre.backends.training.group_micro_steps import packed
from gyre.backends.training.settings import ObjectiveSettings, OptimizerSettings, TrainerSettings
from gyre.backends.training.trainer import Trainer
from gyre.trajectory.packing import MicroStep
from gyre.trajectory.samples import Samples

SETTINGS: Final = TrainerSettings(
    objective=ObjectiveSettings(kind="grpo"), optimizer=OptimizerSettings(learning_rate=1e-3)
)
EXACT: Final = 1e-4  # float32: |difference| of log-probabilities, and a gradient's difference over its norm
LOSS: Final = 1e-5  # float32: |difference|; tokens' parts of the loss add up to about 1 before they cancel
UPDATED: Final = 1e-6  # float32: |difference| of weights after an update with one and the same gradient
NOISE: Final = 2.0  # bfloat16: so many times the error that bfloat16 has anyway
_HALF_ONLY: Final = ("flash", "transformer_engine")  # attentions that take no float32


@contextmanager
def trainer_on(
    device: str, folder: Path, dtype: torch.dtype = torch.float32, attention: str = "sdpa"
) -> Iterator[Trainer]:
    """A trainer of one rank; products in float32 are exact ones (TF32 off)."""
    torch.set_float32_matmul_precision("highest")
    with world_of_one(device):
        architecture = read_architecture(folder)
        model = build(architecture, Layout(), device, dtype, attention=attention, initialize=False)
        load(model, folder)
        yield Trainer(model, SETTINGS)


def some_samples(folder: Path) -> Samples:
    """Two executions of four branches, 1,280 tokens expanded and 560 as trees."""
    return weighted(forked(read_architecture(folder).vocabulary, prompt=120, own=20, output=20))


@dataclass(frozen=True, slots=True)
class Seen:
    """What a trainer makes of micro-steps, on the host in float32."""

    logprobs: dict[tuple[int, int], float]  # of trained tokens, by row and position
    loss: float
    gradient: Tensor  # N

    def difference(self, other: Seen) -> tuple[float, float]:
        """Mean and largest |difference| of the log-probabilities."""
        assert self.logprobs.keys() == other.logprobs.keys()
        gaps = [abs(value - other.logprobs[token]) for token, value in self.logprobs.items()]
        return sum(gaps) / len(gaps), max(gaps)

    def gradient_error(self, exact: Seen) -> float:
        """The gradients' difference over the norm of the exact one."""
        return float((self.gradient - exact.gradient).norm() / exact.gradient.norm())


def seen(trainer: Trainer, steps: Sequence[tuple[MicroStep, Sequence[int]]]) -> Seen:
    """Go through micro-steps, each with the numbers of its rows."""
    logprobs, loss, gradient = {}, 0.0, torch.zeros(len(trainer.weights))
    for step, rows in steps:
        values = trainer.logprobs(step).cpu()
        for token in np.flatnonzero(step.loss_mask).tolist():
            row = rows[int(step.rows[step.sequence[token]])]
            logprobs[row, int(step.positions[token])] = float(values[token])
        more, figures = trainer.gradient(step)
        gradient += more.cpu()
        loss += figures.loss
    return Seen(logprobs, loss, gradient)


def with_behaviour(trainer: Trainer, samples: Samples) -> Samples:
    """Give samples the log-probabilities of the trainer, a little off: ratios beside 1, as old policies have them."""
    step = packed(samples, "rows")
    off = torch.sin(torch.arange(len(step)) * 1.7) * 1e-2
    values = (trainer.logprobs(step).cpu() + off).numpy() * step.loss_mask
    assert np.array_equal(step.tokens, samples.tokens), "rows are packed in the order of the samples"
    samples.logprobs[:] = values
    return samples


def alone(samples: Samples) -> list[tuple[MicroStep, Sequence[int]]]:
    """Every row in a micro-step of its own: nothing is packed."""
    rows = range(len(samples.row_start) - 1)
    return [(packed(samples.select_rows(np.array([row])), "rows"), [row]) for row in rows]


def together(samples: Samples, packing: str) -> list[tuple[MicroStep, Sequence[int]]]:
    """All rows in one micro-step."""
    return [(packed(samples, packing), range(len(samples.row_start) - 1))]  # type: ignore[arg-type]


def parity_float32(site: Site, sheet: Sheet, folder: Path) -> None:
    """One micro-step of trees and one update, in float32 on the device, against the same on the CPU."""
    samples = some_samples(folder)
    with trainer_on("cpu", folder) as trainer:
        steps = together(with_behaviour(trainer, samples), "trees")
        expected = seen(trainer, steps)
        trainer.update(expected.gradient.clone(), 2)
        updated = trainer.weights.values.clone()
    with trainer_on(site.place, folder) as trainer:
        found = seen(trainer, steps)
        trainer.update(expected.gradient.clone().to(trainer.model.device), 2)
        moved = (trainer.weights.values.cpu() - updated).abs().max()
    mean, largest = found.difference(expected)
    sheet.note(weights=len(updated), trained_tokens=len(found.logprobs), logprob_difference_mean=mean, loss=found.loss)
    sheet.within("logprob_difference", largest, EXACT)
    sheet.within("loss_difference", abs(found.loss - expected.loss), LOSS)
    sheet.within("gradient_error", found.gradient_error(expected), EXACT)
    sheet.within("update_difference", float(moved), UPDATED)


def parity_dense(site: Site, sheet: Sheet) -> None:
    """See `parity_float32`."""
    parity_float32(site, sheet, site.dense())


def parity_experts(site: Site, sheet: Sheet) -> None:
    """See `parity_float32`."""
    parity_float32(site, sheet, site.experts())


def parity_bfloat16(site: Site, sheet: Sheet) -> None:
    """One micro-step in bfloat16 on the device: its error must be what bfloat16 costs on a CPU too."""
    folder = site.dense()
    samples, half = some_samples(folder), torch.bfloat16
    with trainer_on("cpu", folder) as trainer:
        steps = together(with_behaviour(trainer, samples), "trees")
        exact = seen(trainer, steps)
    with trainer_on("cpu", folder, half) as trainer:
        usual = seen(trainer, steps)
    with trainer_on(site.place, folder, half) as trainer:
        found = seen(trainer, steps)
    sheet.note(logprob_error_largest=found.difference(exact)[1])
    sheet.within("logprob_error_mean", found.difference(exact)[0], NOISE * usual.difference(exact)[0])
    sheet.within("gradient_error", found.gradient_error(exact), NOISE * usual.gradient_error(exact))


def attention(site: Site, sheet: Sheet, name: str) -> None:
    """Packed rows, and trees, against each row alone, with one of the attentions that a layer's spec takes."""
    folder = site.dense()
    samples = some_samples(folder)
    with trainer_on(site.place, folder) as trainer:
        exact = seen(trainer, alone(with_behaviour(trainer, samples)))
    packings = ("rows",) if name == "transformer_engine" else ("rows", "trees")
    for dtype in (torch.bfloat16,) if name in _HALF_ONLY else (torch.float32, torch.bfloat16):
        with trainer_on(site.place, folder, dtype, name) as trainer:
            singly = seen(trainer, alone(samples))
            precise = dtype is torch.float32
            bounds = (EXACT, EXACT) if precise else _noise(singly, exact)
            kind = str(dtype).removeprefix("torch.")
            for packing in packings:
                found = seen(trainer, together(samples, packing))
                mean, largest = found.difference(singly)
                sheet.within(f"{kind}_{packing}_logprob_difference", largest if precise else mean, bounds[0])
                sheet.within(f"{kind}_{packing}_gradient_difference", found.gradient_error(singly), bounds[1])


def _noise(found: Seen, exact: Seen) -> tuple[float, float]:
    return NOISE * found.difference(exact)[0], NOISE * found.gradient_error(exact)


def checkpoint(site: Site, sheet: Sheet) -> None:
    """A checkpoint of the device is taken up there bit by bit, and on a CPU; the next update is the same."""
    folder, out = site.dense(), site.folder / "checkpoints"
    with trainer_on(site.place, folder) as trainer:
        gradients = [_some_gradient(trainer, seed) for seed in range(3)]
        for gradient in gradients[:2]:
            trainer.update(gradient.clone().to(trainer.model.device), 1)
        kept = LocalCell(trainer)
        Checkpoints(out).save(kept, CheckpointState(2, kept.layout))
        before = _state(trainer)
        trainer.update(gradients[2].clone().to(trainer.model.device), 1)
        after = _state(trainer)
    for device in dict.fromkeys((site.place, "cpu")):
        with trainer_on(device, folder) as trainer:
            Checkpoints(out).restore(LocalCell(trainer))
            sheet.holds(f"restored_on_{device}_bit_equal", _equal(_state(trainer), before))
            trainer.update(gradients[2].clone().to(trainer.model.device), 1)
            gap = max(float((a - b).abs().max()) for a, b in zip(_state(trainer), after, strict=True))
            sheet.within(f"update_after_on_{device}", gap, 0.0 if device == site.place else UPDATED)


def _some_gradient(trainer: Trainer, seed: int) -> Tensor:
    size = len(trainer.weights)
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)) / math.sqrt(size)


def _state(trainer: Trainer) -> list[Tensor]:
    return [trainer.weights.values.cpu().clone(), *(value.cpu() for value in trainer.optimizer.state().values())]


def _equal(some: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(some, others, strict=True))
