"""Lengths of what was trained against what was offered, with cancelled executions as censored."""

from __future__ import annotations

import numpy as np
import pytest
from report_toy import Toy, toy_journal
from watch_journals import CELLS

from gyre import commands as cmd
from gyre import events as ev
from gyre.journal import Entry, Header
from gyre.report import record_run
from gyre.report.selection import LengthSelection, length_selection
from gyre.report.selection_figure import merged_ends, selection_figure


def redundant_journal(groups: int, size: int, extra: int, seed: int = 0) -> list[Header | Entry]:
    """Every group starts `size + extra` executions of exponential lengths of mean 1000 s; the first `size` are kept."""
    rng = np.random.default_rng(seed)
    entries: list[Header | Entry] = [Header({}), ev.RunStarted(0.0, CELLS)]
    width = size + extra
    body: list[Entry] = []
    for group in range(groups):
        members = tuple(range(group * width, (group + 1) * width))
        lengths = rng.exponential(1000.0, width)
        order = np.argsort(lengths)
        last_s = float(lengths[order[size - 1]])
        entries.append(cmd.DispatchGroup(0.0, group, 0, members, group))
        entries += [ev.ExecutionStarted(0.0, member, 0) for member in members]
        for place in order[:size]:
            end_s = float(lengths[place])
            body.append(ev.ExecutionFinished(end_s, members[place], "completed", ((0, max(1, int(end_s))),), 3))
            body.append(ev.ExecutionScored(end_s, members[place], True, 1.0, (10,)))
        body += [cmd.CancelExecution(last_s, members[place], "enough members") for place in order[size:]]
    ordered: list[Entry] = sorted(body, key=lambda entry: entry.time_s)
    entries += ordered
    entries.append(cmd.OpenStep(1e5, 0))
    entries += [cmd.OfferMicroSteps(1e5, 0, group, 0, group, ((10,),)) for group in range(groups)]
    entries += [ev.UpdateApplied(1e5, 1), cmd.StopRun(1e5, 1)]
    return entries


@pytest.fixture(scope="module")
def redundant() -> LengthSelection:
    return length_selection(record_run(redundant_journal(500, 6, 2)))


def test_redundancy_trains_short_executions_and_the_estimate_sees_through_it(redundant: LengthSelection) -> None:
    """The first 6 of 8 exponentials of mean m last m/6 sum over order statistics: E[X(k)] = m sum_{j<=k} 1/(8-j+1)."""
    order = np.cumsum([1000.0 / (8 - place) for place in range(6)])
    assert redundant.trained_mean_s == pytest.approx(float(order.mean()), rel=0.03)
    # Kaplan-Meier up to the longest time seen, t: the mean of min(X, t), m (1 - exp(-t/m)); here t is far in the tail.
    assert redundant.mean_s == pytest.approx(1000.0, rel=0.06)
    assert redundant.median_s == pytest.approx(1000.0 * np.log(2), rel=0.06)
    assert redundant.bias == pytest.approx(order.mean() / 1000.0 - 1, abs=0.05)
    assert "shorter" in redundant.sentence
    assert (redundant.started, redundant.censored, redundant.trained) == (4000, 1000, 3000)


def test_time_spared_by_cancelling_is_the_mean_remaining_time(redundant: LengthSelection) -> None:
    """An exponential has no memory: each of 1,000 cancelled executions would have run for 1,000 s more."""
    (cancelled,) = redundant.cancelled
    assert (cancelled.reason, cancelled.executions, cancelled.groups) == ("enough members", 1000, 500)
    assert cancelled.spared_s == pytest.approx(1e6, rel=0.15)


def test_without_censoring_nothing_is_biased() -> None:
    found = length_selection(record_run(redundant_journal(50, 8, 0)))
    assert found.mean_s == pytest.approx(found.trained_mean_s)
    assert found.median_s == pytest.approx(found.trained_median_s, rel=0.05)
    assert not found.is_restricted
    assert found.cancelled == []


@pytest.mark.parametrize("policy", ["colocate", "elastic"])
def test_classes_sum_to_what_was_offered(policy: str) -> None:
    record = record_run(toy_journal(Toy(policy=policy, steps=4, loss_rate=0.1, score_failure_rate=0.2)))
    found = length_selection(record)
    assert sum(one.offered for one in found.by_seconds) == found.started
    assert sum(one.trained for one in found.by_seconds) == found.trained
    assert sum(one.offered for one in found.by_tokens) + found.tokens_unknown == found.started
    for one in (*found.by_seconds, *found.by_tokens, *merged_ends(found.by_seconds)):
        assert one.trained + sum(one.not_trained.values()) == one.offered
    assert sum(one.offered for one in merged_ends(found.by_seconds)) == found.started


def test_a_run_that_trained_nothing_has_no_figure() -> None:
    found = length_selection(record_run(redundant_journal(3, 2, 0)[:8]))
    assert selection_figure(found) is None
    assert found.sentence == ""
    assert length_selection(record_run([Header({})])).by_seconds == []
