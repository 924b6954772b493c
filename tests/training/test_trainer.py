"""A trainer of one rank against transformers, against plain torch, and against itself on other packings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("megatron.core", reason="training stands on megatron-core")
import torch
from model_kit import VOCABULARY, loaded, make_folder, reference
from packing_samples import random_samples
from training_kit import SETTINGS, group_micro_steps, new_trainer

from gyre.backends.models.world import world_of_one
from gyre.backends.training.figures import Figures
from gyre.backends.training.micro_step_bytes import from_bytes, to_bytes
from gyre.backends.training.settings import ObjectiveSettings, OptimizerSettings, TrainerSettings
from gyre.backends.training.trainer import Trainer
from gyre.errors import InputError
from gyre.trajectory.objectives import GrpoSettings
from gyre.trajectory.packing import pack_rows, pack_trees

SAMPLES = random_samples(5, executions=4, size=40, rows=4, by_segment=False, vocabulary=VOCABULARY)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("trainer") / "model", "qwen3")


@pytest.fixture(scope="module", autouse=True)
def one_world() -> Iterator[None]:
    with world_of_one():
        yield


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_are_those_of_transformers(folder: Path, temperature: float) -> None:
    """Each row alone through transformers, for rows side by side and for trees."""
    trainer = new_trainer(folder, TrainerSettings(temperature=temperature))
    theirs = reference(folder)
    for step in [*pack_rows(SAMPLES, 80), *pack_trees(SAMPLES, 80)]:
        found = trainer.logprobs(step)
        for sequence, row in enumerate(step.rows):
            tokens = torch.from_numpy(SAMPLES.tokens[SAMPLES.row(row)]).long()
            with torch.no_grad():
                logits = theirs(tokens[None]).logits[0] / temperature
            expected = logits[:-1].log_softmax(-1).gather(1, tokens[1:, None])[:, 0]
            own = torch.from_numpy(step.sequence == sequence)
            position = torch.from_numpy(step.positions)[own].long()
            torch.testing.assert_close(found[own], expected[position - 1], atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", ["ppo", "grpo", "gspo"])
def test_trees_have_the_gradient_of_rows(folder: Path, kind: str) -> None:
    """Of every objective, with ratios beside 1: the behaviour's log-probabilities are the trainer's, a little off."""
    trainer = new_trainer(folder, TrainerSettings(objective=ObjectiveSettings(kind=kind)))  # type: ignore[arg-type]
    found = []
    for packing in (pack_rows(SAMPLES, 80), pack_trees(SAMPLES, 80), pack_trees(SAMPLES, 1000)):
        total, figures = torch.zeros(len(trainer.weights)), Figures()
        for step in packing:
            off = torch.sin(torch.from_numpy(step.tokens) * 1.7 + torch.from_numpy(step.positions)) * 1e-4
            step.logprobs[:] = torch.where(torch.from_numpy(step.loss_mask), trainer.logprobs(step) + off, 0.0).numpy()
            gradient, more = trainer.gradient(from_bytes(to_bytes(step)))
            total, figures = total + gradient, figures + more
        found.append((total, figures))
    (rows, seen), *others = found
    assert rows.abs().max() > 1e-3
    for trees, again in others:
        torch.testing.assert_close(trees, rows, atol=1e-6, rtol=1e-4)
        assert (again.tokens, again.clipped) == (seen.tokens, seen.clipped)
        assert again.loss == pytest.approx(seen.loss, abs=1e-6)


def test_the_difference_between_training_and_serving_is_said_by_version(folder: Path) -> None:
    """Behaviour log-probabilities that are off by a known amount for each version."""
    trainer = new_trainer(folder)
    (step,) = pack_rows(SAMPLES, 1000)
    exact = trainer.logprobs(step).numpy()
    step.logprobs[:] = (exact + 0.01 * (step.versions + 1)) * step.loss_mask
    _, figures = trainer.gradient(step)
    said = figures.metrics(2, 4)
    for version in (0, 1, 2):
        for kind in ("mean", "max"):
            assert said[f"logprob_difference_{kind}_lag{2 - version}"] == pytest.approx(0.01 * (version + 1), abs=1e-5)


def test_it_learns_a_fixed_batch(folder: Path) -> None:
    """Where all advantages are 1 the objective is likelihood: the sampled tokens become likely."""
    settings = TrainerSettings(
        objective=ObjectiveSettings(kind="ppo"), optimizer=OptimizerSettings(learning_rate=3e-3, warmup_updates=3)
    )
    trainer = new_trainer(folder, settings)
    step = group_micro_steps(3)[0]
    step.loss_weights[:] = step.loss_mask / step.loss_mask.sum()
    likelihoods = []
    for _ in range(25):
        exact = trainer.logprobs(step)
        likelihoods.append(float(exact.sum()) / int(step.loss_mask.sum()))
        step.logprobs[:] = exact.numpy()
        trainer.update(trainer.gradient(step)[0], 1)
    assert likelihoods[-1] > likelihoods[0] + 2.0
    assert trainer.version == 25


def test_the_warm_up_is_linear_and_the_norm_is_clipped(folder: Path) -> None:
    """Against torch's own clipping and AdamW on the same model."""
    trainer, plain = new_trainer(folder), new_trainer(folder)
    settings = SETTINGS.optimizer
    parameters = list(plain.model.network.parameters())
    adam = torch.optim.AdamW(parameters, lr=1.0, weight_decay=0.0)
    for update in range(4):
        gradient, _ = trainer.gradient(group_micro_steps(update)[0])
        gradient *= 100.0
        for place, parameter in zip(plain.weights.places, parameters, strict=True):
            parameter.grad = plain.weights.view(gradient, place).clone()
        norm = torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        adam.param_groups[0]["lr"] = settings.learning_rate * min(1.0, (update + 1) / 3)
        adam.step()
        said = trainer.update(gradient.clone(), 1)
        assert said["grad_norm"] == pytest.approx(float(norm), rel=1e-5)
        assert said["learning_rate"] == adam.param_groups[0]["lr"]
        torch.testing.assert_close(trainer.weights.values, plain.weights.values, atol=1e-6, rtol=1e-5)


def test_a_gradient_that_is_no_number_changes_nothing(folder: Path) -> None:
    trainer = new_trainer(folder)
    before = trainer.weights.values.clone()
    with pytest.raises(FloatingPointError, match="no update is made"):
        trainer.update(torch.full((len(before),), float("nan")), 1)
    assert torch.equal(trainer.weights.values, before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_memory_that_moves_in_mid_training_changes_nothing(folder: Path, dtype: torch.dtype) -> None:
    """As between host and GPU: parameters, master weights, moments and the reference policy stay one with another."""
    grpo = ObjectiveSettings(kind="grpo", grpo=GrpoSettings(kl_weight=0.1))
    settings = TrainerSettings(objective=grpo, optimizer=OptimizerSettings(learning_rate=1e-2))
    ends = []
    for moves in (False, True):
        trainer = Trainer(loaded(folder, dtype=dtype), settings)
        for step in group_micro_steps(0)[:3]:
            gradient, _ = trainer.gradient(step)
            trainer.update(gradient, 1)
            before = trainer.weights.values
            if moves:
                trainer.move(torch.device("cpu"))
                assert trainer.weights.values.data_ptr() != before.data_ptr()
                before.fill_(torch.nan)  # it is nobody's any more
        ends.append(trainer.weights.values)
    assert torch.equal(*ends)


def test_bytes_that_are_no_micro_step_are_refused() -> None:
    with pytest.raises(InputError, match="all cells must run the same version"):
        from_bytes(b"\x10\0\0\0\0\0\0\0{}")
