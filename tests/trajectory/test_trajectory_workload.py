"""The made-up workload of the benchmarks: that it holds what it says, and what such executions are known to hold."""

from __future__ import annotations

import io
import sys
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gyre.role import Role
from gyre.trajectory.building import build_tree
from gyre.trajectory.call import CallRecord, Finish
from gyre.trajectory.store.checked_file import COMPRESSION_LEVEL
from gyre.trajectory.store.node_table import node_frame

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
from trajectory_conversation import Counts, Shape
from trajectory_text import VOCABULARY, phrase_book
from trajectory_workload import MEASURED, Workload, generate, step

SMALL = Shape(
    calls=160,
    preamble_tokens=80,
    sub_preamble_tokens=40,
    window_tokens=600,
    output_tokens=6,
    result_tokens=9,
    summary_tokens=12,
    kept_tokens=10,
    sub_agent_every=30,
    sub_agent_calls=7,
    retried=0.05,
    repeated=0.05,
    aborted=0.05,
    drifted=0.05,
    calls_per_version=20,
)


def counted(workload: Workload) -> Counts:
    """Count tokens by their whole prefix, in a dict of dicts that knows nothing of how the calls were made."""
    root: dict[int, Any] = {}
    unique, sampled = 0, set()
    for call, role in zip(workload.records, workload.roles, strict=True):
        node, inputs = root, call.input_ids.tolist()
        for place, token in enumerate(inputs + call.output_ids.tolist()):
            if token not in node:
                node[token] = {}
                unique += 1
            node = node[token]
            if place >= len(inputs) and role is not Role.SIDE:
                sampled.add(id(node))
    inputs_read = sum(len(call.input_ids) for call in workload.records)
    return Counts(len(workload.records), inputs_read, unique, len(sampled))


@pytest.mark.parametrize("seed", range(6))
def test_counts_are_those_of_a_plain_trie(seed: int) -> None:
    workload = generate(SMALL, seed)
    assert astuple(workload.counts) == astuple(counted(workload))


@pytest.mark.parametrize("own_buffers", [False, True])
def test_the_full_size_has_the_measured_shape(own_buffers: bool) -> None:
    """596 calls, 32.2 M input tokens, 866,609 unique, 298,467 sampled, 1,198 nodes, 26 leaves were measured."""
    workload = generate(MEASURED, own_buffers=own_buffers)
    tree = build_tree(workload.records)
    assert (tree.unique_tokens, tree.sampled_tokens) == (workload.counts.unique_tokens, workload.counts.sampled_tokens)
    assert abs(workload.counts.calls - 596) <= 2
    assert workload.counts.input_tokens == pytest.approx(32.2e6, rel=0.05)
    assert tree.unique_tokens == pytest.approx(866_609, rel=0.05)
    assert tree.sampled_tokens == pytest.approx(298_467, rel=0.05)
    assert len(tree.node_parent) == pytest.approx(1_198, rel=0.05)
    assert len(tree.leaf_node) == pytest.approx(26, abs=6)


@pytest.mark.parametrize("seed", range(3))
def test_roles_are_found_without_being_told(seed: int) -> None:
    workload = generate(MEASURED, seed)
    tree = build_tree(workload.records)
    assert [list(Role)[role] for role in tree.calls.role.tolist()] == list(workload.roles)
    assert not tree.refused


def test_it_has_what_long_executions_have() -> None:
    workload = generate(replace(SMALL, calls=600), 1)
    calls = workload.records
    contexts = [(call.input_ids.tobytes(), call.output_ids.tobytes()) for call in calls]
    assert set(workload.roles) >= {Role.MAIN, Role.MAIN_SUMMARY, Role.SUB_AGENT, Role.SIDE}
    assert len(set(contexts)) < len(contexts)  # repeated, word for word
    assert len({prompt for prompt, _ in contexts}) < len(set(contexts))  # asked again, another output
    resumed = [call for call in calls if call.finish is Finish.ABORT]
    assert resumed
    inputs = {prompt for prompt, _ in contexts}
    assert all(call.input_ids.tobytes() + call.output_ids.tobytes() in inputs for call in resumed)
    assert any(call.versions is not None and len(np.unique(call.versions)) == 2 for call in calls)
    assert all(call.logprobs is None for call in calls if not call.by_policy)


def test_a_workload_depends_on_its_seed_alone() -> None:
    first, again, other = generate(SMALL, 3), generate(SMALL, 3, own_buffers=True), generate(SMALL, 4)
    assert first.counts == again.counts != other.counts
    for one, two in zip(first.records, again.records, strict=True):
        np.testing.assert_array_equal(one.input_ids, two.input_ids)
        np.testing.assert_array_equal(one.output_ids, two.output_ids)


def test_text_compresses_about_as_real_text_does() -> None:
    """Real text took 0.88 bytes an id where the store writes it, its sources 0.96; independent draws take 2."""
    text = phrase_book().text(np.random.default_rng(5).random(870_000, np.float32))
    tree = build_tree([CallRecord("e", "c", 0, text[:-1], text[-1:], np.zeros(1, np.float32))])
    buffer = io.BytesIO()
    node_frame([tree]).select("ids").write_parquet(buffer, compression="zstd", compression_level=COMPRESSION_LEVEL)
    assert len(text) == 870_000
    assert 0 <= text.min() <= text.max() < VOCABULARY
    assert 0.8 < len(buffer.getvalue()) / len(text) < 1.15


def test_a_step_is_made_one_execution_at_a_time_group_by_group() -> None:
    made = step(executions=8, groups=2, shape=SMALL)
    names = [(ended.group, workload.execution == ended.execution) for ended, workload in made]
    assert names == [("group-0", True)] * 4 + [("group-1", True)] * 4
