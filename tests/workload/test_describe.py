"""Descriptions: hand-counted small traces, recorded data against the figures measured on them elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from small_profile import small_profile

from gyre.workload.description import describe, distributions_of, samples
from gyre.workload.importers import import_trace
from gyre.workload.presentation import description_page
from gyre.workload.presentation.figures import _log_histogram
from gyre.workload.presentation.labels import TITLES, short_number
from gyre.workload.profiles.generate import generate
from gyre.workload.profiles.nominal import nominal_durations
from gyre.workload.trace import Trace


@pytest.fixture(scope="module")
def katas(shared_module: Path) -> Trace:
    return import_trace(shared_module / "traces/recorded/agentic_coding_lab.executions.parquet")[0]


@pytest.fixture(scope="module")
def shared_module(request: pytest.FixtureRequest) -> Path:
    folder: Path = request.getfixturevalue("shared")
    return folder


def small_trace() -> Trace:
    """One execution with two sub-agents of one call each, a compaction with its summary, and a retry."""
    rows = [
        # index, thread, role, parent, relation, prefix, dropped, input, output, after, wait, kind
        (0, 0, "main", None, "root", 0, 0, 100, 10, None, 0.0, "start"),
        (1, 1, "sub_agent", None, "root", 0, 0, 50, 5, 0, 0.0, "start"),
        (2, 2, "sub_agent", None, "root", 0, 0, 60, 6, 0, 0.0, "start"),
        (3, 0, "main", 0, "append", 110, 0, 130, 20, 0, 1.0, "subagent_join"),
        (4, 0, "main_summary", 3, "append", 150, 0, 155, 40, 3, 90.0, "tool"),
        (5, 0, "main", 4, "compaction", 70, 125, 120, 8, 4, 0.0, "tool"),
        (6, 0, "main", 5, "append", 128, 0, 140, 3, 5, 30.0, "tool"),
        (7, 0, "main", 6, "retry", 140, 3, 140, 9, 6, 2.0, "tool"),
    ]
    names = [
        *("call_index", "thread", "role", "parent_call", "relation", "prefix_tokens", "dropped_tokens", "input_tokens"),
        *("output_tokens", "after_call", "wait_s", "wait_kind"),
    ]
    calls = pl.DataFrame(rows, schema=names, orient="row", infer_schema_length=None).with_columns(
        execution_id=pl.lit("e"), parent_thread=pl.when(pl.col("thread") > 0).then(0)
    )
    executions = pl.DataFrame(
        {
            "execution_id": ["e"],
            "group_id": ["g"],
            "source": ["hand"],
            "outcome": ["completed"],
            "reward": [1.0],
            "score_status": ["scored"],
            "setup_s": [3.0],
            "scoring_s": [0.0],
            "wall_s": [200.0],
            "human_in_loop": [False],
            "censored": [False],
            "synthetic": [False],
            "n_calls": [8],
            "sum_input_tokens": [895],
            "sum_output_tokens": [101],
            "token_quality": ["recorded"],
            "time_quality": ["recorded"],
            "prefix_quality": ["recorded"],
        }
    )
    return Trace.from_frames(executions=executions, calls=calls)


def test_the_samples_of_a_trace_counted_by_hand() -> None:
    arrays = samples(small_trace()).arrays()
    expected = {
        "calls": [8],
        "main_calls": [4],  # neither the summary nor the retry
        "unique_tokens": [100 + 10 + 55 + 66 + 20 + 20 + 5 + 40 + 50 + 8 + 12 + 3 + 0 + 9],
        "longest_context_tokens": [195],
        "first_input_tokens": [100],
        "output_tokens_per_call": [10, 5, 6, 20, 8, 9],  # not the failed attempt's 3
        "growth_tokens_per_call": [20, 12],
        "tool_wait_s_per_call": [30.0],  # the summary's wait belongs to no turn, a compacted call follows at once
        "subagent_join_wait_s_per_call": [1.0],
        "compaction_context_tokens": [155],
        "compaction_summary_tokens": [40],
        "compaction_next_context_tokens": [120],
        "sub_agents_per_execution": [2],
        "sub_agent_calls": [1, 1],
        "sub_agents_at_once": [2],
        "setup_s": [3.0],
        "scoring_s": [],
        "wall_s": [200.0],
    }
    assert {name: arrays[name].tolist() for name in expected} == expected


def test_the_facts_of_a_trace_counted_by_hand() -> None:
    found = describe(small_trace())
    assert found.prefix_reuse == pytest.approx((110 + 150 + 70 + 128 + 140) / 895)
    assert (found.compactions, found.compacting_executions, found.sub_agents, found.sub_agent_executions) == (
        1,
        1,
        2,
        1,
    )
    assert found.roles == {"main": 5, "sub_agent": 2, "main_summary": 1}
    assert found.groups.count == 1
    assert found.groups.between_share_calls is None
    assert found.waits["tool"].long_share == pytest.approx(0.0)


def test_json_holds_every_number_and_every_quantity_has_a_title() -> None:
    profile = small_profile()
    trace = generate(profile, groups=6, seed=0)
    found = describe(trace, duration_s=nominal_durations(trace, profile).execution_s)
    read = json.loads(json.dumps(found.to_json()))
    assert read["distributions"]["calls"]["n"] == len(trace.executions.filter(pl.col("n_calls") > 0))
    assert read["synthetic_scale"] == profile.scale
    assert read["groups"]["longest_over_median"]["n"] == 5  # a set-up failed in the sixth
    assert set(found.distributions) <= set(TITLES)


def test_the_recorded_katas_have_the_figures_measured_elsewhere(katas: Trace) -> None:
    """Figures of the recording's own documentation."""
    found = describe(katas)
    law = found.distributions
    assert (found.executions, found.calls, found.tools) == (855, 143_701, 144_189)
    assert (found.compactions, found.compacting_executions) == (195, 153)
    assert found.sub_agent_executions == 443
    assert (law["calls"].p50, law["calls"].max) == (113, 972)
    assert law["wall_s"].p50 == pytest.approx(770, rel=0.01)
    assert law["model_s"].mean == pytest.approx(1209, rel=0.01)
    assert law["sum_input_tokens"].p50 == pytest.approx(7.1e6, rel=0.01)
    assert law["output_tokens_per_call"].p50 == 293
    assert law["output_tokens_per_call"].p99 == 2332
    assert law["compaction_next_context_tokens"].p50 == pytest.approx(56_700, rel=0.01)
    assert found.groups.longest_over_median is not None
    assert found.groups.longest_over_median.n == 126
    assert found.groups.longest_over_median.p50 == pytest.approx(1.3, abs=0.05)
    assert found.groups.longest_over_median.p90 == pytest.approx(2.1, abs=0.06)
    assert found.groups.longest_over_median.max == pytest.approx(93, abs=0.5)


def test_a_page_is_self_contained_and_escapes_names() -> None:
    trace = generate(small_profile(scale="<b>big</b>"), groups=3, seed=0)
    page = description_page(describe(trace), distributions_of(samples(trace)))
    assert "&lt;b&gt;big&lt;/b&gt;" in page
    assert "<b>big" not in page
    assert 'src="http' not in page
    assert "plotly.js v" in page


def test_histograms_hold_every_positive_value() -> None:
    value = np.array([0.0, 0.001, 1.0, 1.0, 1e6])
    edges, count = _log_histogram(value)
    assert count.sum() == 4
    assert edges[0] <= 0.001
    assert edges[-1] >= 1e6


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.0434, "0.0434"),
        (1.934, "1.93"),
        (113.0, "113"),
        (9427.0, "9,427"),
        (167_000.0, "167 K"),
        (1.27e6, "1.27 M"),
    ],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert short_number(value) == text
