"""A compiled trace: release graph and selected paths, against plain references."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_traces import call, sub_agent, trace_of
from token_trees import TokenCall, Tokens, common, trained_edges, trees, unique_tokens

from gyre.errors import InputError
from gyre.leaf_drawing import path_uniforms
from gyre.role import TRAINED_ROLES, Role
from gyre.workload import Program, Trace, validate
from gyre.workload.compile import compile_program
from gyre.workload.paths import selected_paths


def test_a_plain_turn_is_released_by_the_one_before() -> None:
    program = compile_program(trace_of([call(0), call(1), call(2)]))
    assert program.dependencies.tolist() == [0, 1, 1]
    assert program.successor_start.tolist() == [0, 1, 2, 2]
    assert program.successor.tolist() == [1, 2]
    assert program.wait_s.tolist() == [0.0, 1.0, 1.0]
    assert program.prefix_call.tolist() == [-1, 0, 1]


def test_a_join_waits_for_all_parallel_sub_agents() -> None:
    trace = trace_of(
        [
            call(0),
            sub_agent(1, 1, after=0),
            sub_agent(2, 2, after=0),
            sub_agent(3, 2, after=2, parent_call=2, relation="append", prefix_tokens=310, wait_kind="tool"),
            call(4, parent_call=0, after_call=0, prefix_tokens=110, wait_kind="subagent_join"),
        ]
    )
    assert validate(trace).ok
    program = compile_program(trace)
    assert releasers(program) == [set(), {0}, {0}, {2}, {0, 1, 3}]
    assert program.thread_count.tolist() == [3]


def test_a_thread_is_joined_once() -> None:
    join: dict[str, Any] = {"wait_kind": "subagent_join"}
    trace = trace_of(
        [
            call(0),
            sub_agent(1, 1, after=0),
            call(2, parent_call=0, after_call=0, prefix_tokens=110, **join),
            sub_agent(3, 2, after=2),
            call(4, parent_call=2, after_call=2, prefix_tokens=310, **join),
            call(5, **join),
        ]
    )
    assert releasers(compile_program(trace)) == [set(), {0}, {0, 1}, {2}, {2, 3}, {4}]


def test_a_background_sub_agent_is_not_joined() -> None:
    trace = trace_of([call(0), sub_agent(1, 1, after=0), call(2, parent_call=0, after_call=0, prefix_tokens=110)])
    assert releasers(compile_program(trace)) == [set(), {0}, {0}]


def test_a_call_without_output_gets_one_token() -> None:
    assert compile_program(trace_of([call(0, output_tokens=0)])).output_tokens.tolist() == [1]


def test_an_edge_that_leads_back_is_refused() -> None:
    trace = trace_of([call(0, after_call=1), call(1)])
    with pytest.raises(InputError, match="execution e: call 0 waits for a call that does not come before it"):
        compile_program(trace)


def test_a_trace_without_executions_is_refused() -> None:
    whole = trace_of([call(0)])
    with pytest.raises(InputError, match="holds no executions"):
        compile_program(Trace(whole.executions.clear(), whole.groups.clear(), whole.calls.clear(), whole.tools))


@pytest.mark.parametrize("max_paths", [0, -1])
def test_a_useless_number_of_paths_is_refused(max_paths: int) -> None:
    with pytest.raises(InputError, match="must be 1 or more"):
        compile_program(trace_of([call(0)]), max_paths=max_paths)


def releasers(program: Program, execution: int = 0) -> list[set[int]]:
    """For each call of an execution, the calls that release it, read from the CSR; degrees are checked on the way."""
    low, high = program.call_start[execution], program.call_start[execution + 1]
    found: list[set[int]] = [set() for _ in range(high - low)]
    for row in range(low, high):
        for target in program.successor[program.successor_start[row] : program.successor_start[row + 1]]:
            assert row - low not in found[target]
            found[target].add(int(row - low))
    assert [len(before) for before in found] == program.dependencies[low:high].tolist()
    return found


@st.composite
def threaded(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Calls of one execution with sub-agents that are spawned at random and joined at random, maybe nested."""
    calls = [call(0)]
    last = {0: 0}  # thread: its latest call
    parent_of: dict[int, int | None] = {0: None}
    unjoined: dict[int, set[int]] = {0: set()}
    for index in range(1, draw(st.integers(1, 12))):
        thread = draw(st.sampled_from(sorted(last)))
        action = draw(st.sampled_from(["turn", "spawn", "join"]))
        if action == "spawn":
            new = len(parent_of)
            calls.append(sub_agent(index, new, after=last[thread], parent_thread=thread))
            parent_of[new], last[new], unjoined[new] = thread, index, set()
            unjoined[thread].add(new)
            continue
        joining = action == "join"
        fields: dict[str, Any] = {
            "thread": thread,
            "parent_thread": parent_of[thread],
            "role": "sub_agent" if thread else "main",
            "after_call": last[thread],
            "parent_call": last[thread],
            "prefix_tokens": 0,
            "relation": "branch",
            "wait_kind": "subagent_join" if joining else "tool",
        }
        calls.append(call(index, **fields))
        last[thread] = index
        if joining:  # a joined thread ends here: nothing more of it may follow
            for child in unjoined[thread]:
                last.pop(child, None)
            unjoined[thread] = set()
    return calls


def reference_releasers(calls: list[dict[str, Any]]) -> list[set[int]]:
    """The schema's rule, word for word."""
    result = []
    joined: set[int] = set()
    for number, one in enumerate(calls):
        before = set() if one["after_call"] is None else {one["after_call"]}
        if one["wait_kind"] == "subagent_join":
            for thread in {other["thread"] for other in calls[:number]} - joined - {one["thread"]}:
                members = [other for other in calls if other["thread"] == thread]
                if members[0]["parent_thread"] == one["thread"] and members[0]["after_call"] < number:
                    joined.add(thread)
                    before.add(members[-1]["call_index"])
        result.append(before)
    return result


@settings(max_examples=60, deadline=None)
@given(several=st.lists(threaded(), min_size=1, max_size=3))
def test_the_release_graph_is_the_schemas(several: list[list[dict[str, Any]]]) -> None:
    rows = [one | {"execution_id": f"e{number}"} for number, calls in enumerate(several) for one in calls]
    trace = trace_of(rows)
    assert not [finding for finding in validate(trace).violations if finding.rule != "join_after_threads"]
    if validate(trace).ok:  # a thread's own sub-agent may outlive it and be continued after the join: not sound
        program = compile_program(trace)
        for number, calls in enumerate(several):
            assert releasers(program, number) == reference_releasers(calls)
            assert every_call_is_reached(program, number)


def every_call_is_reached(program: Program, execution: int) -> bool:
    """Run the release graph as a simulator does."""
    low, high = program.call_start[execution], program.call_start[execution + 1]
    waiting = program.dependencies[low:high].copy()
    ready = list(np.flatnonzero(waiting == 0))
    done = 0
    while ready:
        row = low + ready.pop()
        done += 1
        for target in program.successor[program.successor_start[row] : program.successor_start[row + 1]]:
            waiting[target] -= 1
            if not waiting[target]:
                ready.append(target)
    return bool(done == high - low)


def main(*pairs: tuple[list[int], list[int]]) -> list[TokenCall]:
    """Calls of the main thread by their tokens."""
    return [TokenCall(tuple(given), tuple(sampled)) for given, sampled in pairs]


# (calls, unique tokens U, trained tokens N, leaves L): cases whose outputs differ, so that lengths tell all.
TREES = {
    "two turns": (main(([1], [2]), ([1, 2, 3], [4])), 4, 2, 1),
    "two answers": (main(([1], [2, 3]), ([1], [4, 3])), 5, 4, 2),
    "compaction": (main(([1], [2]), ([1, 2, 9], [5, 6]), ([1, 5, 6], [7])), 8, 4, 2),
    "summary rejected": (main(([1], [2]), ([1, 2, 9], [5]), ([1, 2, 3], [4])), 6, 3, 2),
    "forest": (main(([1], [2]), ([8], [9])), 4, 2, 2),
    "three forks": (main(([1], [2]), ([1, 2, 3], [4]), ([1, 2, 5], [6]), ([1, 2, 7], [8])), 8, 4, 3),
    "retry beside": (main(([1], [2]), ([1, 2, 3], [4]), ([1], [7])), 5, 3, 2),
    "tool result deleted": (main(([1], [2]), ([1, 2, 3, 4], [5]), ([1, 2, 4], [6])), 7, 3, 2),
    "drift": (main(([1], [2, 3, 4]), ([1, 8, 4, 5], [6])), 8, 4, 2),
    "same length drift": (main(([1], [2, 3, 4]), ([1, 2, 8, 4, 5], [6])), 8, 4, 2),
    "stop token replaced": (main(([1], [2, 99]), ([1, 2, 50, 3], [4])), 6, 3, 2),
    "thinking stripped": (main(([1], [90, 91, 4]), ([1, 4, 5], [6])), 7, 4, 2),
    "cut by length, extended": (main(([1], [2, 3]), ([1, 2, 3], [4])), 4, 3, 1),
}


def selected_calls(calls: list[TokenCall], most: int, seed: int = 0) -> list[int]:
    """Calls at the ends of the selected paths."""
    start, selected = selected_paths(trees(calls), ["e"], most, seed=seed)
    assert start.tolist() == [0, len(selected)]
    return selected.tolist()


@pytest.mark.parametrize("name", TREES)
def test_leaves_and_trained_tokens_of_known_trees(name: str) -> None:
    calls, unique, trained, leaves = TREES[name]
    selected = selected_calls(calls, 100)
    assert len(selected) == leaves
    assert trained_edges(calls, selected) == trained
    given = trees(calls)
    assert int((given.input_tokens - given.prefix_tokens + given.output_tokens).sum()) == unique == unique_tokens(calls)


def test_a_path_taken_alone_trains_its_share_of_an_output() -> None:
    """Of the two paths one holds 3 trainable tokens, the other 4: one of these three, and its own output."""
    calls = main(([1], [2, 3, 4]), ([1, 2, 8, 4, 5], [6, 7, 10]))
    chosen = [tuple(selected_calls(calls, 1, seed)) for seed in range(700)]
    assert chosen.count((1,)) == pytest.approx(400, abs=3.3 * np.sqrt(700 * 4 / 7 * 3 / 7))
    assert set(chosen) == {(0,), (1,)}
    assert trained_edges(calls, [1]) == 4


def test_classes_come_before_size() -> None:
    mains = [TokenCall((1,), (10 + i,)) for i in range(5)]
    subs = [TokenCall((2,), tuple(range(100 * i, 100 * i + 50)), Role.SUB_AGENT) for i in range(1, 7)]
    selected = selected_calls(subs + mains, 5)
    assert sorted(selected) == [6, 7, 8, 9, 10]


def test_side_calls_are_never_trained_on() -> None:
    calls = [TokenCall((1,), (2,)), TokenCall((5,), tuple(range(10, 60)), Role.SIDE)]
    assert selected_calls(calls, 5) == [0]


def test_path_tokens_are_the_leafs_context() -> None:
    program = compile_program(trace_of([call(0), call(1), call(2, relation="branch", prefix_tokens=60)]))
    assert program.path_start.tolist() == [0, 2]
    assert sorted(program.path_tokens.tolist()) == [210, 310]
    assert compile_program(trace_of([call(0), call(1)]), max_paths=1).path_tokens.tolist() == [210]


def test_draws_depend_on_the_execution_and_the_seed_not_on_other_executions() -> None:
    def branches(execution: str) -> list[dict[str, Any]]:
        fields: dict[str, Any] = {"relation": "branch", "prefix_tokens": 60, "execution_id": execution}
        return [call(0, execution_id=execution), *(call(i, **fields) for i in range(1, 9))]

    def drawn(executions: list[str], seed: int) -> list[list[int]]:
        rows = [row for execution in executions for row in branches(execution)]
        program = compile_program(trace_of(rows), max_paths=3, seed=seed)
        return [part.tolist() for part in np.split(program.path_tokens, program.path_start[1:-1])]

    together = drawn(["a", "b"], seed=1)
    assert drawn(["b"], seed=1) == together[1:]
    assert len({tuple(paths) for seed in range(5) for paths in drawn(["a", "b"], seed)}) > 5


@st.composite
def conversations(draw: st.DrawFn) -> list[TokenCall]:
    """Calls whose input begins with a part of an earlier context; every output token is new, so it is sampled once."""
    fresh = iter(range(1000, 100_000))
    calls: list[TokenCall] = []
    for _ in range(draw(st.integers(1, 9))):
        start: Tokens = ()
        if len(calls) > 0 and draw(st.booleans()):
            context = draw(st.sampled_from(calls)).context
            start = context[: draw(st.integers(1, len(context)))]
        new = tuple(next(fresh) for _ in range(draw(st.integers(1, 3))))
        sampled = tuple(next(fresh) for _ in range(draw(st.integers(1, 4))))
        calls.append(TokenCall(start + new, sampled, draw(st.sampled_from(list(Role)))))
    return calls


@settings(max_examples=100, deadline=None)
@given(calls=conversations(), seed=st.integers(0, 3))
def test_all_paths_train_every_sampled_token_once(calls: list[TokenCall], seed: int) -> None:
    everything = sum(len(call.output) for call in calls if call.role is not Role.SIDE)
    assert trained_edges(calls, selected_calls(calls, 100, seed)) == everything


@settings(max_examples=100, deadline=None)
@given(calls=conversations(), most=st.integers(1, 4), seed=st.integers(0, 3))
def test_each_path_is_drawn_from_the_highest_class_left_in_proportion(
    calls: list[TokenCall], most: int, seed: int
) -> None:
    leaf_class = {leaf: class_of(calls, leaf) for leaf in leaves_of(calls)}
    chosen: list[int] = []
    for uniform in path_uniforms(seed, ["e"], most)[0]:
        gain = {leaf: trained_edges(calls, [*chosen, leaf]) - trained_edges(calls, chosen) for leaf in leaf_class}
        left = [leaf for leaf in leaf_class if gain[leaf] > 0]
        if not left:
            break
        highest = min(leaf_class[leaf] for leaf in left)
        line = [leaf for leaf in left if leaf_class[leaf] == highest for _ in range(gain[leaf])]
        chosen.append(line[int(uniform * len(line))])
    assert selected_calls(calls, most, seed) == chosen


def leaves_of(calls: list[TokenCall]) -> list[int]:
    """Calls whose whole context no other call continues."""
    contexts = [one.context for one in calls]
    return [i for i, own in enumerate(contexts) if not any(later.input[: len(own)] == own for later in calls)]


def class_of(calls: list[TokenCall], leaf: int) -> int:
    """Class of a leaf: its call's, or for a side call that of the deepest trained call whose output it continues."""
    outputs = [
        (common(one.context, calls[leaf].context), one.role)
        for one in calls
        if one.role in TRAINED_ROLES and common(one.context, calls[leaf].context) > len(one.input)
    ]
    role = calls[leaf].role if calls[leaf].role in TRAINED_ROLES else max(outputs, default=(0, Role.SIDE))[1]
    return TRAINED_ROLES.index(role) if role in TRAINED_ROLES else len(TRAINED_ROLES)
