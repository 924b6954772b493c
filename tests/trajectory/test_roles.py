"""Roles inferred from scripted executions whose shapes are those that harnesses show on the wire."""

from __future__ import annotations

from dataclasses import replace

import pytest
from call_script import ScriptedCall, links_of, roles_of
from hypothesis import given
from hypothesis import strategies as st

from gyre.role import Role
from gyre.trajectory.call import Finish
from gyre.trajectory.roles import find_roles

MAIN, SUMMARY, SUB, SUB_SUMMARY, SIDE = Role
TASK = tuple(range(100, 140))  # system prompt, tools and task
PREAMBLE = TASK[:30]  # without the task
OTHER = tuple(range(200, 240))  # preamble of a sub-agent
SUMMARISER = tuple(range(300, 330))  # prompt that asks for a summary of the text after it
HISTORY_AS_TEXT = tuple(range(400, 480))


def turns(opening: tuple[int, ...], count: int, first: int = 1000) -> list[ScriptedCall]:
    """Return a conversation of `count` calls, each with all outputs so far and eight tokens of tool result."""
    calls, context = [], opening
    for number in range(count):
        output = (first + 10 * number, first + 10 * number + 1)
        calls.append(ScriptedCall(context, output))
        context += output + tuple(range(first + 5000 + 10 * number, first + 5008 + 10 * number))
    return calls


def grown(call: ScriptedCall) -> tuple[int, ...]:
    """Return a call's context with a tool result behind it."""
    return call.input + call.output + tuple(range(7000, 7008))


def window(summary: tuple[int, ...], count: int = 2, first: int = 2000) -> list[ScriptedCall]:
    """Return the calls after a compaction: the same preamble, then the summary."""
    return turns((*PREAMBLE, 88, *summary), count, first)


def test_a_single_conversation_is_main_to_its_end() -> None:
    assert roles_of(turns(TASK, 5)) == [MAIN] * 5


def test_retries_drift_and_an_edited_history_stay_in_their_conversation() -> None:
    calls = turns(TASK, 4)
    retry = replace(calls[1], output=(55, 56))
    rewritten = replace(calls[3], input=(*calls[2].input, calls[2].output[0], 66, *calls[3].input[-8:]))
    edited = replace(calls[3], input=calls[3].input[:50] + calls[3].input[58:], output=(77,))
    assert roles_of([*calls[:2], retry, calls[2], rewritten, edited, *calls[3:]]) == [MAIN] * 7


@pytest.mark.parametrize("harness", ["claude-code", "opencode", "qwen-code", "codex", "deepagents", "unheard-of"])
def test_a_fresh_context_beside_main_is_a_sub_agent(harness: str) -> None:
    main, sub = turns(TASK, 3), turns(OTHER, 3, 3000)
    assert roles_of([main[0], *sub[:2], main[1], sub[2], main[2]], harness) == [MAIN, SUB, SUB, MAIN, SUB, MAIN]


def test_a_context_that_shares_the_preamble_beside_main_is_a_sub_agent() -> None:
    main, sub = turns(TASK, 3), turns((*PREAMBLE, 91, 92), 2, 3000)
    assert roles_of([main[0], main[1], *sub, main[2]]) == [MAIN, MAIN, SUB, SUB, MAIN]


def test_a_fresh_context_after_mains_last_call_is_main_again_unless_the_harness_has_sub_agents() -> None:
    calls = [*turns(TASK, 3), *turns(OTHER, 2, 3000)]
    assert roles_of(calls) == [MAIN] * 5
    assert roles_of(calls, "pi") == [MAIN] * 5
    assert roles_of(calls, "claude-code") == [MAIN] * 3 + [SUB] * 2


@pytest.mark.parametrize("harness", ["claude-code", "claude-code/2.1", ""])
def test_a_call_that_leaves_the_last_turns_before_a_new_window_is_a_summary(harness: str) -> None:
    main = turns(TASK, 6)
    asked = ScriptedCall((*main[5].input[:-4], 81, 82, 83), (90, 91, 92), Finish.STOP)
    again = replace(asked, output=(93, 94))
    calls = [*main, asked, again, *window(again.output)]
    assert roles_of(calls, harness) == [MAIN] * 6 + [SUMMARY] * 2 + [MAIN] * 2


def test_an_early_summary_that_keeps_no_turn_in_place_is_told_from_the_window_after_it() -> None:
    main = turns(TASK, 2)
    asked = ScriptedCall((*TASK[:38], *range(81, 93)), (95, 96), Finish.STOP)
    calls = [*main, asked, *window(asked.output)]
    assert roles_of(calls, "claude-code") == [MAIN, MAIN, SUMMARY, MAIN, MAIN]


@pytest.mark.parametrize("harness", ["qwen-code", ""])
def test_a_call_on_the_whole_history_before_a_shorter_window_is_a_summary(harness: str) -> None:
    main = turns(TASK, 6)
    asked = ScriptedCall((*grown(main[5]), 81, 82), (90, 91), Finish.STOP)
    assert roles_of([*main, asked, *window(asked.output)], harness) == [MAIN] * 6 + [SUMMARY] + [MAIN] * 2


def test_history_cut_without_a_summary_leaves_the_tool_call_before_it_main() -> None:
    assert roles_of([*turns(TASK, 6), *window(())], "qwen-code") == [MAIN] * 8


@pytest.mark.parametrize("harness", ["pi", "openhands", "deepagents", "opencode", ""])
def test_the_history_pasted_into_a_fresh_prompt_before_a_new_window_is_a_summary(harness: str) -> None:
    first = ScriptedCall(SUMMARISER + HISTORY_AS_TEXT, (90, 91), Finish.STOP)
    second = ScriptedCall(SUMMARISER + HISTORY_AS_TEXT[:40] + (1, 2), (92,), Finish.STOP)
    calls = [*turns(TASK, 6), first, *window((90, 91), 4), second, *window((92,), 2, 4000)]
    assert roles_of(calls, harness) == [MAIN] * 6 + [SUMMARY] + [MAIN] * 4 + [SUMMARY] + [MAIN] * 2


def test_a_sub_agents_summary_is_of_its_own_kind() -> None:
    main, sub = turns(TASK, 2), turns(OTHER, 6, 3000)
    asked = ScriptedCall((*sub[5].input[:-4], 81, 82, 83), (90, 91, 92), Finish.STOP)
    after = turns((*OTHER[:30], 90, 91, 92), 2, 5000)
    calls = [main[0], *sub, asked, *after, main[1]]
    assert roles_of(calls, "claude-code") == [MAIN] + [SUB] * 6 + [SUB_SUMMARY] + [SUB] * 2 + [MAIN]


def test_codex_names_threads_and_compacts_without_tools() -> None:
    """The compaction request has no tool list, so that not one token of the history stays at its place."""
    main = [replace(call, thread="a") for call in turns(TASK, 5)]
    sub = [replace(call, thread="b", parent_thread="a") for call in turns((*TASK[:35], 1, 2), 2, 3000)]
    compaction = ScriptedCall((*main[4].input[10:], 81), (90, 91), Finish.STOP, "a")
    after = [replace(call, thread="a") for call in window((90, 91))]
    calls = [*main[:3], sub[0], main[3], sub[1], main[4], compaction, *after]
    expected = [MAIN] * 3 + [SUB, MAIN, SUB, MAIN, SUMMARY, MAIN, MAIN]
    assert roles_of(calls, "codex") == expected


def test_a_thread_with_a_parent_is_a_sub_agent_even_where_it_goes_on_from_mains_context() -> None:
    main = turns(TASK, 3)
    fork = ScriptedCall(grown(main[1]), (90,), thread="helper", parent_thread="lead")
    calls = [replace(main[0], thread="lead"), replace(main[1], thread="lead"), fork, replace(main[2], thread="lead")]
    assert roles_of(calls) == [MAIN, MAIN, SUB, MAIN]


@pytest.mark.parametrize("by_policy", [True, False])
@pytest.mark.parametrize(("harness", "thread"), [("opencode", ""), ("opencode", "s"), ("claude-code", "s")])
def test_a_title_call_is_a_side_call_before_main_or_beside_its_first_call(
    harness: str, thread: str, by_policy: bool
) -> None:
    main = [replace(call, thread=thread) for call in turns(TASK, 3)]
    title = ScriptedCall(tuple(range(600, 610)), (90, 91), Finish.STOP, thread, by_policy=by_policy)
    assert roles_of([title, *main], harness) == [SIDE, MAIN, MAIN, MAIN]
    assert roles_of([main[0], title, *main[1:]], harness) == [MAIN, SIDE, MAIN, MAIN]


def test_without_knowing_the_harness_only_another_models_call_is_a_side_call() -> None:
    main = turns(TASK, 2)
    short = ScriptedCall((600, 601), (90,), Finish.STOP)
    assert roles_of([main[0], short, main[1]]) == [MAIN, SUB, MAIN]
    assert roles_of([main[0], replace(short, by_policy=False), main[1]]) == [MAIN, SIDE, MAIN]


def test_a_label_wins_and_the_calls_that_go_on_from_it_follow() -> None:
    main, sub = turns(TASK, 3), turns(OTHER, 3, 3000)
    labelled = [replace(sub[0], label=SIDE), *sub[1:]]
    assert roles_of([main[0], *labelled, *main[1:]]) == [MAIN, SIDE, SIDE, SIDE, MAIN, MAIN]
    only_one = [main[0], replace(main[1], label=SUB_SUMMARY), main[2]]
    assert roles_of(only_one)[1] is SUB_SUMMARY


def test_each_role_comes_with_a_reason() -> None:
    calls = [*turns(TASK, 2), replace(turns(OTHER, 1)[0], label=SIDE)]
    found = find_roles(links_of(calls))
    assert [finding.role for finding in found] == [MAIN, MAIN, SIDE]
    assert [finding.reason for finding in found] == ["first context", "first context", "label"]
    assert find_roles(links_of([])) == ()


_CALL = st.builds(
    ScriptedCall,
    st.lists(st.integers(0, 2), min_size=1, max_size=6).map(tuple),
    st.lists(st.integers(0, 2), max_size=3).map(tuple),
    st.sampled_from(list(Finish)),
    st.sampled_from(["", "a", "b"]),
    st.sampled_from(["", "a"]),
    st.sampled_from([None, None, None, *Role]),
    st.booleans(),
)


@given(st.lists(_CALL, max_size=12), st.sampled_from(["", "pi", "codex", "claude-code", "opencode", "qwen-code"]))
def test_every_call_gets_a_role_and_labels_are_kept(calls: list[ScriptedCall], harness: str) -> None:
    found = find_roles(links_of(calls, harness))
    assert len(found) == len(calls)
    assert all(finding.reason for finding in found)
    assert all(call.label in (None, finding.role) for call, finding in zip(calls, found, strict=True))
