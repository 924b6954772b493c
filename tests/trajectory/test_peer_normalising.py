"""What went wrong elsewhere in baselines and means of losses, and does not here.

Shown in other modules, and not again here:

- agent-lightning#593 (means over rows):
  `test_samples.test_each_execution_counts_once_however_many_samples_and_tokens_it_has`.
- slime#2300 with one row against three: `test_samples.test_the_baseline_is_over_executions_not_over_samples`.
- agentcore-rl-toolkit#122, tokens that fill up rows in trainers' tensors:
  `test_exchange.test_the_trainers_mean_gives_each_token_its_weight`.
- A member without a score: `test_advantages.test_a_missing_score_counts_for_no_baseline` and
  `test_samples.test_a_missing_score_drops_the_execution`.
- prime-rl#2358 for rows dealt out in any way: `test_samples.test_a_split_into_micro_batches_changes_no_loss`.
"""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packing_samples import random_samples
from test_objectives import TOKEN_CASES, policies, summed
from test_samples import ALL, Item, answers, item

from gyre.trajectory.advantages import Baseline
from gyre.trajectory.making import make_samples
from gyre.trajectory.packing import MicroStep, pack_rows, pack_trees
from gyre.trajectory.samples import Samples

SCORES = st.sampled_from([0.0, 0.25, 0.5, 1.0])
FAN_OUTS = st.lists(st.integers(1, 4), min_size=1, max_size=4)  # tokens of each of an execution's rows


def by_execution(samples: Samples) -> dict[str, tuple[float, float]]:
    """Advantage and weight of a trained token, of each execution."""
    table = samples.executions
    return {
        name: (advantage, weight)
        for name, advantage, weight in zip(
            table.execution, table.advantage.tolist(), table.token_weight.tolist(), strict=True
        )
    }


def test_an_execution_of_three_rows_does_not_pull_the_baseline() -> None:
    """slime#2300: rows of scores [1, 1, 1, 0], three of them of one execution, gave a baseline of .75."""
    samples = make_samples([item("A", 1.0, answers(5, 6, 7)), item("B", 0.0, answers(4))], ALL, Baseline.MEAN)
    of_rows = samples.executions.score[samples.row_execution]
    assert of_rows.tolist() == [1, 1, 1, 0]
    assert of_rows.mean() == 0.75
    assert samples.executions.advantage.tolist() == [1 - 0.5, 0 - 0.5]


@given(st.lists(st.tuples(SCORES, FAN_OUTS, FAN_OUTS), min_size=2, max_size=5), st.sampled_from(Baseline))
def test_fan_out_changes_no_advantage_and_no_executions_share(
    members: list[tuple[float, list[int], list[int]]], baseline: Baseline
) -> None:
    """slime#2300, agent-lightning#593: the same scores with other numbers of rows are the same advantages."""
    one, other = (
        make_samples(
            [item(f"e{n}", score, answers(*fan_outs[kind])) for n, (score, *fan_outs) in enumerate(members)],
            ALL,
            baseline,
        )
        for kind in (0, 1)
    )
    assert one.executions.advantage.tolist() == other.executions.advantage.tolist()
    for samples in (one, other):
        of_execution = np.zeros(len(members))
        np.add.at(of_execution, np.repeat(samples.row_execution, np.diff(samples.row_start)), samples.loss_weights())
        np.testing.assert_allclose(of_execution, samples.executions.advantage / len(members), atol=1e-15)


@st.composite
def pads(draw: st.DrawFn) -> list[Item]:
    """Executions that say nothing, of an empty tree or of one with answers, to go among others."""
    count = draw(st.integers(0, 3))
    score = st.sampled_from([None, math.nan])
    return [item(f"pad{n}", draw(score), answers(*draw(st.just([]) | FAN_OUTS))) for n in range(count)]


@given(st.lists(st.tuples(SCORES, FAN_OUTS), min_size=1, max_size=4), pads(), st.sampled_from(Baseline), st.data())
def test_a_member_that_is_missing_or_a_pad_changes_nothing_for_the_others(
    members: list[tuple[float, list[int]]], missing: list[Item], baseline: Baseline, data: st.DataObject
) -> None:
    """agentcore-rl-toolkit#122: pad rows, there to make batches even, entered the baseline and the loss."""
    real = [item(f"e{n}", score, answers(*lengths)) for n, (score, lengths) in enumerate(members)]
    alone = make_samples(real, ALL, baseline)
    among = make_samples(data.draw(st.permutations([*real, *missing])), ALL, baseline)
    assert set(among.executions.execution) == set(alone.executions.execution)
    for name, expected in by_execution(alone).items():
        assert by_execution(among)[name] == pytest.approx(expected, abs=1e-15)
    assert set(among.dropped) == {record.execution for record, _ in missing}
    assert math.fsum(np.abs(among.loss_weights())) == pytest.approx(math.fsum(np.abs(alone.loss_weights())))
    scores = [score for score, _ in members]
    if baseline is Baseline.MEAN and len(scores) > 1:
        above = [score - statistics.fmean(scores) for score in scores]
        assert [by_execution(among)[f"e{n}"][0] for n in range(len(scores))] == pytest.approx(above, abs=1e-15)


def dealt(steps: list[MicroStep], shares: list[int]) -> list[list[MicroStep]]:
    """Micro-steps of each cell, in turn, of shares that need not be even; the last cell takes the rest."""
    cells = []
    for share in shares:
        cells.append(steps[:share])
        steps = steps[share:]
    return [*cells, steps]


@pytest.mark.parametrize("case", TOKEN_CASES, ids=str)
@settings(max_examples=20)
@given(seed=st.integers(0, 2**32 - 1), shares=st.lists(st.integers(0, 4), min_size=1, max_size=3), tree=st.booleans())
def test_cells_of_uneven_shares_add_up_to_one_cell(case, seed: int, shares: list[int], tree: bool) -> None:  # type: ignore[no-untyped-def]
    """prime-rl#2358, Megatron-LM#4590: a mean of the ranks' own means weighs tokens by what else their rank holds.

    Cells join and leave within a step, so that their shares are never even. Here each adds what it has.
    """
    samples = random_samples(seed)
    new, reference = policies(samples, case.noise, seed)
    steps = list((pack_trees if tree else pack_rows)(samples, 40))
    whole, gradient, _ = summed(case, steps, samples, new, reference)
    cells = [summed(case, cell, samples, new, reference)[:2] for cell in dealt(steps, shares) if cell]
    assert math.fsum(loss for loss, _ in cells) == pytest.approx(whole, rel=1e-12, abs=1e-12)
    for key, expected in gradient.items():
        assert math.fsum(of_cell[key] for _, of_cell in cells) == pytest.approx(expected, rel=1e-9, abs=1e-13)


def test_a_mean_of_the_cells_means_is_another_loss() -> None:
    """prime-rl#2358, Megatron-LM#4590: what the test above would not let pass, with its error by hand."""
    samples = make_samples([item("A", 1.0, answers(9)), item("B", 0.0, answers(1, 1, 1))], ALL, Baseline.MEAN)
    per_token = np.repeat(samples.executions.advantage[samples.row_execution], np.diff(samples.row_start))
    parts = [samples.select_rows(np.array(rows)) for rows in ([0, 1], [2, 3])]
    halves = (slice(0, samples.row_start[2]), slice(samples.row_start[2], None))
    means = [float(per_token[half][samples.loss_mask[half]].mean()) for half in halves]
    assert means == pytest.approx([(9 * 0.5 - 1 * 0.5) / 10, -0.5])
    assert statistics.fmean(means) == pytest.approx(-0.05)
    assert math.fsum(float(part.loss_weights().sum()) for part in parts) == pytest.approx(0.0, abs=1e-16)
