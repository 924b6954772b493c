"""Proof on a small model: a tree-packed step has the gradient of its rows, and shared tokens count once."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from packing_samples import Trie, random_samples, samples_of

from gyre.trajectory.packing import MicroStep, pack_rows, pack_trees
from gyre.trajectory.samples import Samples

torch = pytest.importorskip("torch", reason="gradients need torch: pip install 'gyre[torch]'")

from torch import Tensor, nn  # noqa: E402

from gyre.trajectory.objectives import QWENGYRE, Batch, gspo_loss, ppo_loss, token_logprobs  # noqa: E402

VOCABULARY, WIDTH, HEADS, LAYERS = 31, 32, 4, 2
LIMITS = [(torch.float64, 1e-12), (torch.float32, 1e-5)]


def rotated(x: Tensor, positions: Tensor) -> Tensor:
    """Rotary embedding (Su et al. 2021, RoFormer) of x (heads, T, size)."""
    half = x.shape[-1] // 2
    angles = positions[:, None] * 10000.0 ** (-torch.arange(half, dtype=x.dtype) / half)
    first, second = x[..., :half], x[..., half:]
    return torch.cat((first * angles.cos() - second * angles.sin(), first * angles.sin() + second * angles.cos()), -1)


class Block(nn.Module):
    """Attention under a boolean mask, then two linear layers, each with a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.into = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
        heads = self.into(nn.functional.layer_norm(x, (WIDTH,))).view(len(x), 3, HEADS, -1).permute(1, 2, 0, 3)
        query, key, value = rotated(heads[0], positions), rotated(heads[1], positions), heads[2]
        scores = query @ key.mT / math.sqrt(query.shape[-1])
        seen = scores.masked_fill(~mask, -math.inf).softmax(-1) @ value
        x = x + self.out(seen.transpose(0, 1).reshape(len(x), WIDTH))
        return x + self.down(nn.functional.gelu(self.up(nn.functional.layer_norm(x, (WIDTH,)))))


class Model(nn.Module):
    """A causal transformer whose only knowledge of order and of neighbours is what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, positions, mask)
        return self.head(x)


def model_of(dtype: torch.dtype) -> Model:
    torch.manual_seed(0)
    return Model().to(dtype)


def flat_gradient(model: Model) -> Tensor:
    return torch.cat([p.grad.flatten() if p.grad is not None else torch.zeros(p.numel()) for p in model.parameters()])


def gradient_of_rows(model: Model, samples: Samples) -> Tensor:
    """Minus the sum of weight times log-probability, each row through the model on its own; no packing involved."""
    model.zero_grad()
    weights = torch.from_numpy(samples.loss_weights()).float()
    for row in range(samples.rows):
        tokens = torch.from_numpy(samples.tokens[samples.row(row)]).long()
        causal = torch.ones(len(tokens), len(tokens), dtype=torch.bool).tril()
        logits = model(tokens, torch.arange(len(tokens)), causal)
        taken = torch.log_softmax(logits[:-1], -1).gather(1, tokens[1:, None]).squeeze(1)
        (-(weights[samples.row(row)][1:] * taken).sum()).backward()
    return flat_gradient(model)


def gradient_of_steps(model: Model, steps: list[MicroStep]) -> Tensor:
    """The same loss over packed micro-steps."""
    model.zero_grad()
    for step in steps:
        batch = Batch.of(step)
        taken = token_logprobs(model(batch.tokens, batch.positions, batch.attention_mask()), batch)
        (-(batch.loss_weights * taken).sum()).backward()
    return flat_gradient(model)


def relative_difference(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


def small_step(*, by_segment: bool = False) -> Samples:
    """Four executions that fork early and late."""
    return random_samples(5, executions=4, size=60, rows=5, by_segment=by_segment, vocabulary=VOCABULARY)


@pytest.mark.parametrize(("dtype", "limit"), LIMITS, ids=str)
@pytest.mark.parametrize("budget", [60, 100, 1000])
def test_a_tree_packed_step_has_the_gradient_of_its_rows(dtype: torch.dtype, limit: float, budget: int) -> None:
    samples = small_step()
    model = model_of(dtype)
    steps = list(pack_trees(samples, budget))
    assert sum(map(len, steps)) < 0.8 * len(samples.tokens)  # something is shared
    assert relative_difference(gradient_of_steps(model, steps), gradient_of_rows(model, samples)) <= limit


@pytest.mark.parametrize(("dtype", "limit"), LIMITS, ids=str)
def test_packed_rows_have_the_gradient_of_rows_apart(dtype: torch.dtype, limit: float) -> None:
    samples = small_step()
    model = model_of(dtype)
    steps = list(pack_rows(samples, 100))
    assert max(len(step.rows) for step in steps) > 1
    assert relative_difference(gradient_of_steps(model, steps), gradient_of_rows(model, samples)) <= limit


def test_counting_shared_tokens_once_for_each_row_gives_another_gradient() -> None:
    samples, several = small_step(), small_step(by_segment=True)
    counted_again = replace(several, executions=samples.executions)
    model = model_of(torch.float64)
    difference = relative_difference(gradient_of_rows(model, counted_again), gradient_of_rows(model, samples))
    assert difference > 0.05


@pytest.mark.parametrize("damage", ["positions", "mask"])
def test_neither_depth_nor_ancestors_can_be_left_out(damage: str) -> None:
    samples = small_step()
    model = model_of(torch.float64)
    (step,) = pack_trees(samples, 1000)
    batch = Batch.of(step)
    mask = batch.attention_mask()
    positions = batch.positions
    if damage == "positions":
        positions = torch.arange(len(positions))
    else:
        mask = torch.ones_like(mask).tril()
    model.zero_grad()
    (-(batch.loss_weights * token_logprobs(model(batch.tokens, positions, mask), batch)).sum()).backward()
    assert relative_difference(flat_gradient(model), gradient_of_rows(model, samples)) > 0.01


@pytest.mark.parametrize("objective", ["ppo", "gspo"])
def test_objectives_have_one_gradient_over_rows_and_trees(objective: str) -> None:
    """Behaviour log-probabilities near the model's own, so that ratios lie on both sides of the clip."""
    samples = small_step()
    model = model_of(torch.float64)
    gradients = []
    for steps in (list(pack_rows(samples, 60)), list(pack_trees(samples, 60)), list(pack_trees(samples, 1000))):
        model.zero_grad()
        for step in steps:
            batch = Batch.of(step)
            taken = token_logprobs(model(batch.tokens, batch.positions, batch.attention_mask()), batch)
            # Off by an amount that depends on the token and its depth, hence equal in every packing.
            off = torch.sin(batch.tokens * 1.7 + batch.positions) * (0.4 if objective == "ppo" else 0.02)
            near = replace(batch, logprobs=torch.where(batch.loss_mask, taken.detach() + off, 0.0))
            loss, _ = ppo_loss(taken, near) if objective == "ppo" else gspo_loss(taken, near, QWENGYRE)
            loss.backward()
        gradients.append(flat_gradient(model))
    for gradient in gradients[1:]:
        assert relative_difference(gradient, gradients[0]) <= 1e-12


def test_the_worked_example_of_a_retry_counts_its_prefix_once() -> None:
    """`[1]=>[2]; [1,2,9]=>[5]; [1,2,3]=>[4]`: two leaves; token 2 is in the loss once."""
    tree = Trie(tokens=[1, 2, 9, 5, 3, 4], parents=[-1, 0, 1, 2, 1, 4], sampled=[False, True, False, True, False, True])
    samples = samples_of([tree], [[3, 5]], [1.0])
    model = model_of(torch.float64)
    (step,) = pack_trees(samples, 10)
    assert int(step.loss_mask.sum()) == 3
    assert relative_difference(gradient_of_steps(model, [step]), gradient_of_rows(model, samples)) <= 1e-12
