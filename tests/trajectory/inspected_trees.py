"""Trees to look at: written call by call, and drawn at random."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from gyre.role import Role
from gyre.trajectory.building import build_tree
from gyre.trajectory.call import CallRecord, Finish
from gyre.trajectory.expand import expand
from gyre.trajectory.inspection import TreeView
from gyre.trajectory.selection import Selection, select
from gyre.trajectory.tree import Tree


def a_call(number: int, prompt: Sequence[int], output: Sequence[int], **more: Any) -> CallRecord:
    """Return call `number` of execution e, of the main role unless told otherwise."""
    values: dict[str, Any] = {
        "execution": "e",
        "call_id": f"c{number}",
        "sequence": number,
        "input_ids": np.array(prompt, np.int32),
        "output_ids": np.array(output, np.int32),
        "logprobs": np.full(len(output), -0.25, np.float32),
        "versions": np.full(len(output), number // 2, np.int32),
        "finish": Finish.TOOL_CALLS,
        "thread": "main",
        "role": Role.MAIN,
    }
    return CallRecord(**(values | more))


def seen(calls: Sequence[CallRecord], **selection: Any) -> TreeView:
    """Return a view of the calls' tree with what a selection takes of it."""
    return view_of(build_tree(calls), **selection)


def view_of(tree: Tree, **selection: Any) -> TreeView:
    """Return a view of a tree with what a selection takes of it."""
    return TreeView(tree, expand(tree, select(tree, Selection(**selection))))


def deep_calls(levels: int, stub_tokens: int = 2) -> list[CallRecord]:
    """Return a conversation in which every turn is asked twice, and goes on from the second answer."""
    calls: list[CallRecord] = []
    context = [1, 2, 3]
    for level in range(levels):
        first = 1_000 + 10 * level
        calls.append(a_call(len(calls), context, [first, *range(5, 4 + stub_tokens)]))
        calls.append(a_call(len(calls), context, [first + 1, first + 2]))
        context = [*context, first + 1, first + 2, first + 3]
    return calls


@st.composite
def call_lists(draw: st.DrawFn) -> list[CallRecord]:
    """Calls whose inputs go on from earlier contexts, from beginnings of them, or from nothing."""
    contexts: list[list[int]] = [[0]]
    calls = []
    for number in range(draw(st.integers(1, 25))):
        base = draw(st.sampled_from(contexts))
        kept = base[: draw(st.integers(0, len(base)))]
        prompt = [*kept, *draw(st.lists(st.integers(0, 3), min_size=0 if kept else 1, max_size=4))]
        output = draw(st.lists(st.integers(0, 3), min_size=1, max_size=4))
        role = draw(st.sampled_from(list(Role)))
        thread = draw(st.sampled_from(["", "main", "agent"]))
        calls.append(a_call(number, prompt, output, role=role, thread=thread))
        contexts.append([*prompt, *output])
    return calls
