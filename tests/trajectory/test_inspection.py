"""What people are shown of a tree: nothing is missing, nothing is shown twice, and it stays readable."""

from __future__ import annotations

import itertools
import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inspected_trees import a_call, call_lists, deep_calls, seen, view_of
from rich.console import Console

from gyre.errors import InputError
from gyre.role import Role
from gyre.trajectory.building import build_tree
from gyre.trajectory.inspection import (
    DropKind,
    TokenText,
    TreeView,
    context_drops,
    inspection_facts,
    inspection_page,
    inspection_text,
)
from gyre.trajectory.inspection.drops import carried_tokens
from gyre.trajectory.inspection.lanes import lanes
from gyre.trajectory.inspection.outline import Outline
from gyre.trajectory.inspection.strips import Fate, strips
from gyre.trajectory.inspection.text import MOST_DROPS, MOST_REFUSED, MOST_RUNS
from gyre.trajectory.inspection.token_text import printable


def printed(view: TreeView, width: int = 160, **how: Any) -> str:
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(inspection_text(view, **how))
    return console.export_text()


# Two turns; the summary of both; a new window that holds the summary and the last tool result word for word.
TAIL = list(range(300, 310))
COMPACTED = [
    a_call(0, [1, 2, 3], [10, 11]),
    a_call(1, [1, 2, 3, 10, 11, *TAIL], [12]),
    a_call(2, [1, 2, 3, 10, 11, *TAIL, 12, 90], [20, 21], role=Role.MAIN_SUMMARY),
    a_call(3, [1, 2, 3, 20, 21, *TAIL[:9]], [30]),
]


def test_compaction_is_counted_token_by_token() -> None:
    """The context before has 19 tokens, 3 stay as prefix, 9 come back in one run: 7 are dropped."""
    (drop,) = context_drops(build_tree(COMPACTED))
    assert (drop.shared, drop.dropped, drop.carried, drop.added) == (3, 7, 9, 11)
    assert drop.large


def test_the_kinds_of_drop() -> None:
    again = [a_call(0, [1, 2], [3, 4, 5]), a_call(1, [1, 2], [6])]
    (retry,) = context_drops(build_tree(again))
    assert (retry.kind, retry.shared, retry.dropped) == (DropKind.RETRY, 2, 3)
    drift = [a_call(0, [1, 2], [3, 4, 5]), a_call(1, [1, 2, 3, 9, 5, 6], [7])]
    (rewrite,) = context_drops(build_tree(drift))
    assert (rewrite.kind, rewrite.shared, rewrite.dropped, rewrite.added) == (DropKind.REWRITE, 3, 2, 3)
    onward = [a_call(0, [1, 2], [3]), a_call(1, [1, 2, 3, 4], [5])]
    assert context_drops(build_tree(onward)) == []


def test_conversations_are_followed_apart() -> None:
    calls = [
        a_call(0, [1, 2], [3]),
        a_call(1, [8, 9], [7], thread="agent", role=Role.SUB_AGENT),
        a_call(2, [5], [6], role=Role.SIDE),
        a_call(3, [1, 2, 3, 4], [5]),
        a_call(4, [8, 9, 7, 1], [7], thread="agent", role=Role.SUB_AGENT),
        a_call(5, [40], [41], thread="", role=Role.SUB_AGENT),
        a_call(6, [50], [51], thread="", role=Role.SUB_AGENT),
    ]
    assert context_drops(build_tree(calls)) == []


@given(
    st.lists(st.integers(0, 1), max_size=40),
    st.lists(st.integers(0, 1), max_size=40),
)
def test_carried_tokens_are_those_in_a_common_run(old: list[int], new: list[int]) -> None:
    runs = {tuple(new[i : i + 8]) for i in range(len(new) - 7)}
    covered = {i + k for i in range(len(old) - 7) if tuple(old[i : i + 8]) in runs for k in range(8)}
    assert carried_tokens(np.array(old, np.int32), np.array(new, np.int32)) == len(covered)


@given(call_lists(), st.booleans())
def test_the_outline_has_every_node_once_and_little_indentation(calls: Any, every_node: bool) -> None:
    view = seen(calls)
    tree, shown = view.tree, list[int]()
    for run in Outline(view, every_node).runs():
        shown += run.nodes
        for twig in run.twigs:
            shown += range(twig, int(tree.node_end[twig]))
            assert not view.selected[tree.node_start[twig] : tree.node_start[tree.node_end[twig]]].any()
        assert len(run.guides) <= 6 + math.log2(max(2, tree.unique_tokens))
        assert not every_node or (len(run.nodes) == 1 and not run.twigs)
        assert len({view.node_role[node] for node in run.nodes}) == 1
    assert sorted(shown) == list(range(len(tree.node_parent)))


@given(call_lists(), st.integers(0, 3))
def test_a_depth_leaves_nodes_out_and_says_how_many(calls: Any, depth: int) -> None:
    view = seen(calls)
    runs = list(Outline(view, every_node=True, depth=depth).runs())
    assert all(len(run.guides) <= depth for run in runs)
    assert sum(len(run.nodes) + run.folded for run in runs) == len(view.tree.node_parent)


@given(call_lists(), st.integers(0, 3))
def test_lanes_hold_no_two_branches_in_one_place_and_connectors_cross_none(calls: Any, room: int) -> None:
    tree = build_tree(calls)
    placed = lanes(tree, np.full(len(tree.leaf_node), room, np.int64))
    starts, ends = tree.node_depth, tree.node_depth + np.diff(tree.node_start)
    boxes: dict[int, list[tuple[int, int]]] = {}
    for node, lane in enumerate(placed.node_lane.tolist()):
        boxes.setdefault(lane, []).append((int(starts[node]), int(ends[node])))
    assert set(boxes) <= set(range(placed.count))
    for row in boxes.values():
        row.sort()
        assert all(left[1] <= right[0] for left, right in itertools.pairwise(row))
    for head in placed.head.tolist():
        parent = int(tree.node_parent[head])
        if parent < 0:
            continue
        low, high, at = int(placed.node_lane[parent]), int(placed.node_lane[head]), int(starts[head])
        assert low < high
        assert not [box for lane in range(low + 1, high) for box in boxes[lane] if box[0] < at < box[1]]


@given(call_lists(), st.integers(2, 8), st.sampled_from(["token", "segment"]))
def test_strips_are_all_tokens_by_their_fate(calls: Any, most: int, dedup: str) -> None:
    view = seen(calls, mode="all", max_tokens=most, dedup=dedup)
    tree, parts = view.tree, strips(view)
    assert parts.length.sum() == tree.unique_tokens
    assert parts.length.min() > 0
    of = {fate: int(parts.length[parts.fate == fate].sum()) for fate in Fate}
    assert of[Fate.TRAINED] == view.trained.sum() == view.node_trained.sum() == view.call_trained.sum()
    assert of[Fate.TRAINED] + of[Fate.SAMPLED] == tree.sampled_tokens
    assert (parts.begins_at == tree.node_depth[parts.node] + parts.first - tree.node_start[parts.node]).all()


def test_context_is_of_the_first_call_that_goes_through_it() -> None:
    calls = [a_call(0, [1, 2, 3], [4]), a_call(1, [1, 2, 9], [5], role=Role.SUB_AGENT, thread="agent")]
    view = seen(calls)
    found = zip(view.tree.node_depth.tolist(), view.node_tokens.tolist(), view.node_call.tolist(), strict=True)
    assert list(found) == [(0, 2, 0), (2, 1, 0), (3, 1, 0), (2, 1, 1), (3, 1, 1)]


def test_every_turn_asked_twice_400_levels_deep_stays_readable() -> None:
    view = seen(deep_calls(400), mode="main_only")
    lines = printed(view).splitlines()
    assert max(len(line) - len(line.lstrip("│├└─ ")) for line in lines) <= 3 * (6 + math.log2(view.tree.unique_tokens))
    unselected = TreeView(view.tree)
    assert len(printed(unselected).splitlines()) < 12
    assert len(printed(unselected, every_node=True).splitlines()) > 800
    assert lanes(view.tree, np.zeros(len(view.tree.leaf_node), np.int64)).count <= 4


def test_text_says_what_is_trained_selected_dropped_and_refused() -> None:
    bad = a_call(4, [1], [2, 3], logprobs=np.array([-1.0, np.nan], np.float32))
    twice = a_call(5, [1, 2, 3], [10, 11], logprobs=np.array([-0.25, -1.0], np.float32))
    text = printed(seen([*COMPACTED, bad, twice]), width=240)
    assert "5 calls (1 more refused), 31 unique tokens, 6 sampled, 6 trained; 2 leaves, 2 selected" in text
    assert "all trained" in text
    assert " 1 " in text
    assert "✂ compaction: c3 keeps 3 of the prefix, 7 tokens dropped, 9 carried over, 11 in their place" in text
    assert "nan logprob" in text
    assert "2 tokens sampled again, log-probabilities differ by at most 0.75" in text
    assert "versions 0–1" in text


def test_each_role_is_shown_with_what_gave_it() -> None:
    calls = [a_call(0, [1, 2], [3], role=None), a_call(1, [8, 9], [7], role=None, thread="agent", parent_thread="main")]
    view = seen([*calls, a_call(2, [1, 2, 3, 4], [5])])
    reasons = ["goes with a labelled call", "thread names a parent", "label"]
    assert [row["role_reason"] for row in inspection_facts(view)["call_table"]] == reasons
    text, page = printed(view, width=240, every_node=True), inspection_page(view)
    assert all(f"role from: {reason}" in text and f"role from: {reason}" in page for reason in reasons)
    assert all(f'<td class="word">{reason}</td>' in page for reason in reasons)
    assert "role from" not in printed(view, width=240)


def test_text_shows_tokens_with_a_tokenizer() -> None:
    shown = TokenText(lambda ids: "".join(chr(97 + i % 26) for i in ids))
    assert "bcd" in printed(seen([a_call(0, [1, 2, 3], [4, 5])]), token_text=shown)


def test_what_could_drive_a_terminal_is_not_printed() -> None:
    call = a_call(0, [1], [2], call_id="\x1b[31m\x07\u202eevil[bold]", thread="[red]a\nb")
    text = printed(seen([call]))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "\u202e" not in text
    assert "[bold]" in text, "no markup is read in ids"


def test_long_runs_of_tokens_are_cut_in_the_middle() -> None:
    text = TokenText()(np.arange(1_000, dtype=np.int32))
    assert text == "ids 0 1 2 3 4 5 6 7 8 9 … 996 997 998 999"
    assert len(printable("x" * 10_000)) == 400


def test_a_missing_tokenizer_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    with pytest.raises(InputError, match="install it"):
        TokenText.of_tokenizer("any")


@given(call_lists())
def test_facts_have_a_json_form_and_agree_with_the_tree(calls: Any) -> None:
    view = seen(calls)
    facts = json.loads(json.dumps(inspection_facts(view), allow_nan=False))
    assert facts["unique_tokens"] == view.tree.unique_tokens
    assert facts["trained_tokens"] == sum(row["trained_tokens"] for row in facts["call_table"])
    assert sorted(leaf["selected"] for leaf in facts["leaves"] if leaf["selected"]) == list(
        range(1, len(view.rows.leaf) + 1 if view.rows else 1)
    )


def test_an_execution_without_a_usable_call_is_shown_too() -> None:
    view = view_of(build_tree([a_call(0, [], [1])]))
    assert "0 calls (1 more refused)" in printed(view)
    assert inspection_facts(view)["leaves"] == []


def many_rewrites(calls: int) -> list[Any]:
    """Return a conversation each turn of which throws most of the context away."""
    return [a_call(number, [1, *range(100 * number, 100 * number + 50)], [2, number]) for number in range(calls)]


def test_the_text_of_very_many_branches_ends_with_how_many_more_there_are() -> None:
    view = seen(many_rewrites(300))
    lines = printed(view).splitlines()
    assert len(lines) < MOST_RUNS + MOST_DROPS + 20
    assert f"… and {301 - MOST_RUNS} more branches and {299 - MOST_DROPS} more drops of context; --all" in "\n".join(
        lines
    )
    every = printed(view, every_node=True)
    assert every.count("✂") == 299
    assert "more" not in every


def test_very_many_refused_calls_are_counted() -> None:
    bad = [a_call(number, [1], [2], logprobs=None) for number in range(MOST_REFUSED + 5)]
    view = view_of(build_tree(bad))
    assert "… and 5 more; --all shows them" in printed(view)
    assert "--all" not in printed(view, every_node=True)
