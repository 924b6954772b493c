"""Conversations of any shape, written anew in any harmless way, never fork; changed ones share what came before."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokens_kit import BASH, STYLES, Style, deltas, results, rewritten, sampled, save_tokenizer

pytest.importorskip("transformers", reason="chat templates and tokenizers are transformers'")

from gyre.backends.proxy.conversation import Message, Request, Speaker, ToolCall
from gyre.backends.proxy.tokens import History, Renderer
from gyre.backends.proxy.tokens.turns import same_turn

WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=20).filter(
    lambda text: text.strip() and not any(mark in text for mark in ("<", "[", "{"))
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.floats(-1e6, 1e6) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=5,
)
ARGUMENTS = st.dictionaries(WORDS, VALUES, max_size=3)
TURNS = st.lists(st.tuples(WORDS, st.sampled_from(["", "Hm."]), st.lists(ARGUMENTS, max_size=2), WORDS), max_size=6)


@pytest.fixture(scope="module")
def renderers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Renderer]:
    return {style.name: Renderer(save_tokenizer(tmp_path_factory.mktemp(style.name), style)) for style in STYLES}


def _turn(style: Style, index: int, text: str, thought: str, arguments: list[dict[str, object]]) -> Message:
    arguments = arguments[: style.most_calls] if "calls" in style.parts else []
    calls = tuple(
        ToolCall(f"call_{index}_{k}", "bash", json.dumps(value, ensure_ascii=False))
        for k, value in enumerate(arguments)
    )
    reasoning = thought if "reasoning" in style.parts else ""
    return Message(Speaker.ASSISTANT, text if style.both or not calls else "", reasoning, calls)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(style=st.sampled_from(STYLES), turns=TURNS, seed=st.integers(0, 2**32), ended=st.booleans())
def test_benign_rewriting_never_forks(renderers: dict[str, Renderer], style: Style, turns, seed, ended) -> None:
    renderer, rng = renderers[style.name], random.Random(seed)
    history = History(renderer)
    messages: tuple[Message, ...] = (Message(Speaker.USER, "do it"),)
    context = np.empty(0, np.int32)
    thinking = False
    moved = False  # whether the template shows earlier turns in another way since
    tools = (BASH,) if style.name != "mistral" else ()  # which moves them with each user message
    for index, (text, thought, arguments, answer) in enumerate(turns):
        prompt = history.prompt(Request(messages, tools))
        if not moved:
            assert np.array_equal(prompt.input_ids[: len(context)], context)
            assert prompt.branch == ""
        turn = _turn(style, index, text, thought, arguments)
        ids = sampled(renderer.tokenizer, style.speak(turn), rng) + [renderer.tokenizer.eos_token_id] * ended
        history.record(prompt, ids, deltas(turn))
        context = np.append(prompt.input_ids, np.array(ids, np.int32))
        follow = results(turn, answer) or (Message(Speaker.USER, answer),)
        thinking = thinking or bool(turn.reasoning)
        moved = thinking and not turn.tool_calls and style.name == "qwen3"
        if style.name == "mistral" and any(m.tool_calls for m in (*messages, turn)):
            return  # its user messages must alternate with answers
        messages = (*messages, turn if moved else rewritten(turn, rng), *follow)


@settings(max_examples=200)
@given(arguments=ARGUMENTS, seed=st.integers(0, 2**32))
def test_arguments_written_anew_are_the_same_and_changed_ones_are_not(arguments, seed) -> None:
    call = ToolCall("call_1", "bash", json.dumps(arguments))
    turn = Message(Speaker.ASSISTANT, "I look.", "Hm.", (call,))
    assert same_turn(turn, rewritten(turn, random.Random(seed)))
    changed = {**arguments, "one more": 1}
    assert not same_turn(turn, replace(turn, tool_calls=(replace(call, arguments=json.dumps(changed)),)))
    for key in arguments:
        other = replace(call, arguments=json.dumps({**arguments, key: [arguments[key]]}))
        assert not same_turn(turn, replace(turn, tool_calls=(other,)))


@settings(max_examples=200)
@given(arguments=st.text(max_size=30))
def test_arguments_that_are_no_json_are_compared_as_text(arguments: str) -> None:
    turn = Message(Speaker.ASSISTANT, "", "", (ToolCall("call_1", "bash", arguments),))
    assert same_turn(turn, turn)
    assert not same_turn(turn, replace(turn, tool_calls=(ToolCall("call_1", "bash", arguments + "x"),)))
