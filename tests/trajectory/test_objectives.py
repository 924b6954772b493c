"""Objectives in torch against plain loops, over any packing: loss, gradient, metrics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packing_samples import Trie, random_samples, samples_of

from gyre.errors import InputError
from gyre.trajectory.packing import MicroStep, RowMicroStep, TreeMicroStep, pack_rows, pack_trees
from gyre.trajectory.samples import Samples

torch = pytest.importorskip("torch", reason="objectives need torch: pip install 'gyre[torch]'")

import objective_loops as loops  # noqa: E402
from objective_loops import Key, Loop  # noqa: E402
from torch import Tensor  # noqa: E402

from gyre.trajectory.objectives import (  # noqa: E402
    QWENGYRE,
    Batch,
    GrpoSettings,
    GspoSettings,
    Metrics,
    PpoSettings,
    decoupled,
    grpo_loss,
    gspo_loss,
    logprobs,
    ppo_loss,
    token_logprobs,
)

Loss = Callable[[Tensor, Batch, Tensor], tuple[Tensor, Metrics]]


@dataclass(frozen=True)
class Case:
    """An objective, and the loop that says what it must be."""

    name: str
    loss: Loss
    loop: Loop
    noise: float  # standard deviation of new against old, so that some tokens are clipped and some not

    def __str__(self) -> str:
        return self.name


TOKEN_CASES = [
    Case(
        "ppo",
        lambda new, batch, _: ppo_loss(new, batch, PpoSettings(clip_low=0.2, clip_high=0.28)),
        loops.ppo(0.2, 0.28),
        0.3,
    ),
    Case(
        "ppo, dual clip",
        lambda new, batch, _: ppo_loss(new, batch, PpoSettings(dual_clip=2)),
        loops.ppo(0.2, 0.2, 2),
        0.8,
    ),
    Case(
        "grpo",
        lambda new, batch, reference: grpo_loss(new, batch, GrpoSettings(kl_weight=0.3), reference_logprobs=reference),
        loops.grpo(0.2, 0.2, 0.3),
        0.3,
    ),
]
SEQUENCE_CASES = [
    Case(
        "gspo",
        lambda new, batch, _: gspo_loss(new, batch, GspoSettings(clip_low=0.03, clip_high=0.04)),
        loops.gspo(0.03, 0.04),
        0.1,
    ),
    Case(
        "gspo, token cap", lambda new, batch, _: gspo_loss(new, batch, QWENGYRE), loops.capped_gspo(5e-3, 5e-3, 5), 0.01
    ),
    Case(
        "gspo, token cap in effect",
        lambda new, batch, _: gspo_loss(new, batch, GspoSettings(clip_low=0.2, clip_high=0.2, token_cap=1.1)),
        loops.capped_gspo(0.2, 0.2, 1.1),
        0.4,
    ),
]


def keys_of(step: MicroStep, samples: Samples) -> list[Key]:
    """Execution and edge of each token of a micro-step."""
    keys: list[Key] = [(-1, -1)] * len(step)
    for k, row in enumerate(step.rows):
        if isinstance(step, TreeMicroStep):
            path = step.path_index[step.path_start[k] : step.path_start[k + 1]].tolist()
        else:
            assert isinstance(step, RowMicroStep)
            path = list(range(step.cu_seqlens[k], step.cu_seqlens[k + 1]))
        for place, edge in zip(path, samples.edges[samples.row(row)].tolist(), strict=True):
            keys[place] = (int(step.row_execution[k]), edge)
    return keys


def policies(samples: Samples, noise: float, seed: int) -> tuple[dict[Key, float], dict[Key, float]]:
    """Log-probabilities of a new and of a reference policy, a little off those recorded, for each edge."""
    generator = np.random.default_rng(seed)
    new: dict[Key, float] = {}
    reference: dict[Key, float] = {}
    execution = np.repeat(samples.row_execution, np.diff(samples.row_start)).tolist()
    for key, old, mask in zip(
        zip(execution, samples.edges.tolist(), strict=True), samples.logprobs.tolist(), samples.loss_mask, strict=True
    ):
        if mask or key not in new:
            new[key] = old + generator.normal() * noise
            reference[key] = old + generator.normal() * noise
    return new, reference


def summed(
    case: Case, steps: list[MicroStep], samples: Samples, new: dict[Key, float], reference: dict[Key, float]
) -> tuple[float, dict[Key, float], Metrics]:
    """Loss, gradient and metrics over all micro-steps."""
    loss, gradient, metrics = 0.0, dict.fromkeys(new, 0.0), []
    for step in steps:
        keys = keys_of(step, samples)
        values = torch.tensor([new[key] for key in keys], dtype=torch.float64, requires_grad=True)
        against = torch.tensor([reference[key] for key in keys], dtype=torch.float64)
        part, measured = case.loss(values, Batch.of(step), against)
        part.backward()
        assert values.grad is not None
        loss += part.item()
        metrics.append(measured)
        for key, slope in zip(keys, values.grad.tolist(), strict=True):
            gradient[key] += slope
    return loss, gradient, sum(metrics[1:], start=metrics[0])


@pytest.mark.parametrize("case", TOKEN_CASES + SEQUENCE_CASES, ids=str)
@settings(max_examples=30)
@given(seed=st.integers(0, 2**32 - 1), budget=st.integers(40, 120))
def test_any_packing_gives_the_loop_s_loss_gradient_and_metrics(case: Case, seed: int, budget: int) -> None:
    samples = random_samples(seed)
    new, reference = policies(samples, case.noise, seed)
    expected = loops.run(case.loop, samples, new, reference)
    for packing in (
        pack_rows(samples, 40),
        pack_rows(samples, budget),
        pack_trees(samples, 40),
        pack_trees(samples, budget),
    ):
        loss, gradient, metrics = summed(case, list(packing), samples, new, reference)
        assert loss == pytest.approx(expected.loss, rel=1e-12, abs=1e-12)
        found = [gradient[key] for key in new]
        np.testing.assert_allclose(found, [expected.gradient[key] for key in new], rtol=1e-12, atol=1e-13)
        assert (int(metrics.tokens), int(metrics.clipped)) == (expected.tokens, expected.clipped)
        some = max(expected.tokens, 1)
        assert metrics.clip_fraction == pytest.approx(expected.clipped / some)
        assert metrics.mean_ratio == pytest.approx(expected.ratio_sum / some, rel=1e-12)
        assert metrics.kl == pytest.approx(expected.kl_sum / some, rel=1e-9, abs=1e-14)


@pytest.mark.parametrize("case", TOKEN_CASES + SEQUENCE_CASES, ids=str)
def test_the_cases_hold_clipped_and_unclipped_tokens_of_either_sign(case: Case) -> None:
    """Else the comparison with the loop shows little."""
    clipped = tokens = 0
    for seed in range(20):
        samples = random_samples(seed)
        result = loops.run(case.loop, samples, *policies(samples, case.noise, seed))
        clipped, tokens = clipped + result.clipped, tokens + result.tokens
    assert 0.05 < clipped / tokens < 0.95


@pytest.mark.parametrize("case", [*TOKEN_CASES, SEQUENCE_CASES[0]], ids=str)
def test_gradients_are_finite_differences_of_the_loop(case: Case) -> None:
    """GSPO as published too: its sequence form has no stopped gradient."""
    samples = random_samples(11)
    new, reference = policies(samples, case.noise, 5)
    _, gradient, _ = summed(case, list(pack_trees(samples, 60)), samples, new, reference)
    step = 1e-6
    for key in new:
        losses = [loops.run(case.loop, samples, new | {key: new[key] + d}, reference).loss for d in (step, -step)]
        assert gradient[key] == pytest.approx((losses[0] - losses[1]) / (2 * step), abs=1e-8)


@pytest.mark.parametrize("case", TOKEN_CASES, ids=str)
@settings(max_examples=30)
@given(seed=st.integers(0, 2**32 - 1))
def test_a_token_trained_on_several_rows_counts_for_each_in_a_tree(case: Case, seed: int) -> None:
    samples = random_samples(seed, by_segment=True)
    new, reference = policies(samples, case.noise, seed)
    expected = loops.run(case.loop, samples, new, reference)
    loss, gradient, _ = summed(case, list(pack_trees(samples, 60)), samples, new, reference)
    assert loss == pytest.approx(expected.loss, rel=1e-6, abs=1e-7)  # weights are added, then rounded to float32
    found = [gradient[key] for key in new]
    np.testing.assert_allclose(found, [expected.gradient[key] for key in new], rtol=1e-6, atol=1e-8)


def test_sequence_objectives_refuse_a_token_that_stands_once_for_several_rows() -> None:
    fork = Trie(tokens=[1, 2, 3, 4], parents=[-1, 0, 1, 1], sampled=[False, True, True, True])
    samples = samples_of([fork], [[2, 3]], [1.0], by_segment=True)
    batch = Batch.of(pack_trees(samples, 10).micro_step(0))
    with pytest.raises(InputError, match="pack_rows"):
        gspo_loss(batch.logprobs, batch)
    copies = Batch.of(pack_rows(samples, 10).micro_step(0))
    gspo_loss(copies.logprobs, copies)


def test_capped_weights_are_published_gspo_where_a_sequence_moves_as_one() -> None:
    samples = random_samples(4)
    batch = Batch.of(pack_rows(samples, 200).micro_step(0))
    moved = torch.linspace(-0.01, 0.01, batch.sequences, dtype=torch.float64)[batch.sequence.clamp(min=0)]
    results = []
    for variant in (QWENGYRE, GspoSettings(clip_low=0.005, clip_high=0.005)):
        new = (batch.logprobs + moved).requires_grad_()
        loss, _ = gspo_loss(new, batch, variant)
        results.append((loss, *torch.autograd.grad(loss, new)))
    torch.testing.assert_close(results[0], results[1], rtol=1e-12, atol=1e-15)


def test_the_clip_is_the_same_for_an_advantage_inside_the_weight() -> None:
    """min(r A, clip(r) A) / (N E) = min(r w, clip(r) w) with w = A / (N E)."""
    ratio = np.array([0.5, 0.9, 1.0, 1.1, 1.5])
    for advantage in (-2.0, 0.0, 0.7):
        direct = np.minimum(ratio * advantage, np.clip(ratio, 0.8, 1.2) * advantage) / 12
        scaled = [loops.surrogate(r, advantage / 12, 0.2, 0.2).value for r in ratio]
        np.testing.assert_allclose(direct, scaled, rtol=1e-15)


def test_decoupled_weights_are_truncated_and_ratios_start_from_the_proximal_policy() -> None:
    samples = random_samples(21)
    batch = Batch.of(pack_trees(samples, 200).micro_step(0))
    generator = torch.Generator().manual_seed(3)
    noise = torch.randn(2, len(batch.tokens), generator=generator, dtype=torch.float64)
    proximal, new = batch.logprobs + noise[0], batch.logprobs + noise[1]
    loss, _ = ppo_loss(new, decoupled(batch, proximal, cap=1.5))
    expected = 0.0
    for t in batch.loss_mask.nonzero().flatten().tolist():
        correction = min(np.exp(proximal[t].item() - batch.logprobs[t].item()), 1.5)
        ratio = np.exp(new[t].item() - proximal[t].item())
        expected -= loops.surrogate(ratio, batch.loss_weights[t].item() * correction, 0.2, 0.2).value
    assert loss.item() == pytest.approx(expected, rel=1e-12)


def test_the_divergence_from_the_reference_is_reported() -> None:
    batch = Batch.of(pack_rows(random_samples(2), 200).micro_step(0))
    loss, metrics = grpo_loss(batch.logprobs.double(), batch, reference_logprobs=batch.logprobs.double() + 0.1)
    assert loss.item() == pytest.approx(-float(batch.loss_weights.sum()), rel=1e-6)  # beta is 0, all ratios are 1
    assert metrics.reference_kl == pytest.approx(np.exp(0.1) - 0.1 - 1, rel=1e-9)
    assert metrics.kl == 0.0


def test_a_kl_term_without_a_reference_is_refused() -> None:
    batch = Batch.of(pack_rows(random_samples(1), 100).micro_step(0))
    with pytest.raises(InputError, match="reference_logprobs"):
        grpo_loss(batch.logprobs, batch, GrpoSettings(kl_weight=0.1))


@pytest.mark.parametrize("pack", [pack_rows, pack_trees])
@pytest.mark.parametrize("chunk", [1, 64, 1 << 24])
def test_token_logprobs_are_those_of_a_log_softmax(
    pack: Callable[..., object], chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logprobs, "CHUNK_ELEMENTS", chunk)
    step = pack(random_samples(8, vocabulary=11), 200).micro_step(0)  # type: ignore[attr-defined]
    batch = Batch.of(step)
    logits = torch.randn(len(step), 11, dtype=torch.float64, requires_grad=True)
    found = token_logprobs(logits, batch)
    whole = torch.log_softmax(logits, -1)
    expected = torch.stack(
        [
            whole[p, t] if m else whole.new_zeros(())
            for p, t, m in zip(step.predictor, step.tokens, step.loss_mask, strict=True)
        ]
    )
    torch.testing.assert_close(found, expected, rtol=1e-14, atol=1e-14)
    weights = torch.randn(len(step), dtype=torch.float64)
    gradients = [torch.autograd.grad((each * weights).sum(), logits)[0] for each in (found, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-12, atol=1e-14)


def test_token_logprobs_of_half_precision_are_float32() -> None:
    batch = Batch.of(pack_trees(random_samples(8, vocabulary=11), 200).micro_step(0))
    logits = torch.randn(len(batch.tokens), 11).bfloat16().requires_grad_()
    found = token_logprobs(logits, batch)
    assert found.dtype == torch.float32
    exact = torch.log_softmax(logits.double(), -1)[batch.predictor, batch.tokens]
    torch.testing.assert_close(found, torch.where(batch.loss_mask, exact, 0.0).float(), rtol=1e-6, atol=1e-6)
    found.sum().backward()
    assert logits.grad is not None
    assert logits.grad.dtype == torch.bfloat16


def test_a_micro_step_without_trained_tokens_has_loss_and_gradient_0() -> None:
    context = Trie(tokens=[1, 2, 3], parents=[-1, 0, 1], sampled=[False] * 3)
    batch = Batch.of(pack_trees(samples_of([context], [[2]], [1.0]), 10).micro_step(0))
    logits = torch.randn(3, 5, requires_grad=True)
    for loss, metrics in (
        ppo_loss(token_logprobs(logits, batch), batch),
        gspo_loss(token_logprobs(logits, batch), batch),
    ):
        loss.backward()
        assert loss.item() == metrics.clip_fraction == metrics.kl == 0.0
    assert logits.grad is not None
    assert not logits.grad.any()
