"""Recorded tokens stand wherever the conversation goes on, with chat templates of many habits."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tokens_kit import BASH, STYLES, Style, deltas, results, rewritten, sampled, save_tokenizer, turn_of

pytest.importorskip("transformers", reason="chat templates and tokenizers are transformers'")
pytest.importorskip("tokenizers")

from gyre.backends.proxy.conversation import Message, Request, Speaker, ToolCall
from gyre.backends.proxy.tokens import History, Prompt, Renderer
from gyre.backends.proxy.tokens.seam import Turn
from gyre.backends.proxy.wire import BadRequestError
from gyre.errors import InputError
from gyre.trajectory.building import build_tree
from gyre.trajectory.call import CallRecord

SYSTEM = Message(Speaker.SYSTEM, "You are a coding agent.")
USER = Message(Speaker.USER, "create hello.txt")
MORE = Message(Speaker.USER, "now delete it")


@pytest.fixture(scope="module")
def renderers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Renderer]:
    return {style.name: Renderer(save_tokenizer(tmp_path_factory.mktemp(style.name), style)) for style in STYLES}


@pytest.fixture(params=STYLES, ids=lambda style: style.name)
def style(request: pytest.FixtureRequest) -> Style:
    chosen: Style = request.param
    return chosen


class Model:
    """Samples what it is told, with token boundaries of its own, and keeps what it was asked."""

    def __init__(self, renderer: Renderer, style: Style, *, tools: bool = True, seed: int = 0) -> None:
        self.renderer, self.style = renderer, style
        self.history = History(renderer)
        self.tools = (BASH,) if tools else ()
        self.rng = random.Random(seed)

    def ask(self, messages: tuple[Message, ...]) -> Prompt:
        return self.history.prompt(Request(messages, self.tools))

    def answer(self, prompt: Prompt, turn: Message, *, ended: bool = True) -> np.ndarray:
        """Sample `turn` and return all of the call's tokens."""
        ids = sampled(self.renderer.tokenizer, self.style.speak(turn), self.rng)
        if ended:
            ids.append(self.renderer.tokenizer.convert_tokens_to_ids(self._ending(turn)))
        assert self.history.record(prompt, ids, deltas(turn)) == turn
        return np.concatenate((prompt.input_ids, np.array(ids, np.int32)))

    def _ending(self, turn: Message) -> str:
        return "<|user|>" if self.style.name == "glm" and not turn.tool_calls else self.style.eos

    def text(self, prompt: Prompt) -> str:
        text: str = self.renderer.tokenizer.decode(prompt.input_ids, clean_up_tokenization_spaces=False)
        return text


def _goes_on(prompt: Prompt, context: np.ndarray) -> bool:
    same = np.array_equal(prompt.input_ids[: len(context)], context)
    assert same == (prompt.reused_tokens == len(context))
    assert same == (prompt.branch == "")
    return same


def test_an_append_only_conversation_never_forks_and_reads_as_the_template_writes_it(
    renderers: dict[str, Renderer], style: Style
) -> None:
    model = Model(renderers[style.name], style)
    messages: tuple[Message, ...] = (SYSTEM, USER) if style.name != "mistral" else (USER,)
    prompt = model.ask(messages)
    assert prompt.reused_tokens == 0
    assert prompt.branch == ""
    for index in range(20):
        turn = turn_of(style, index, calls=1 + index % 2, reasoning="Hm." * (index % 3))
        if style.name == "stripping":
            turn = replace(turn, reasoning="Hm.")
        context = model.answer(prompt, turn)
        answer = results(turn, f"out {index}") if turn.tool_calls else (MORE,)
        messages = (*messages, rewritten(turn, model.rng), *answer)
        prompt = model.ask(messages)
        assert _goes_on(prompt, context)
        assert prompt.input_ids.dtype == np.int32
        if style.name != "stripping":  # which never shows reasoning; what was sampled with it stands
            known = tuple(node for node in messages)
            plain = renderers[style.name].text(Request(_restored(model, known), model.tools))
            assert model.text(prompt) == plain


def _restored(model: Model, messages: tuple[Message, ...]) -> tuple[Message, ...]:
    path = model.history._path(Request(messages, model.tools))
    return tuple(node.message for node in path)


def test_reasoning_that_the_template_drops_makes_a_branch_and_nothing_else_does(renderers: dict[str, Renderer]) -> None:
    style = STYLES[0]
    model = Model(renderers["qwen3"], style)
    plain, thinking = turn_of(style, 0, reasoning=""), turn_of(style, 1)
    first = model.answer(model.ask((USER,)), plain)
    second_prompt = model.ask((USER, plain, *results(plain)))
    second = model.answer(second_prompt, thinking)
    messages = (USER, plain, *results(plain), thinking, *results(thinking))
    assert _goes_on(model.ask(messages), second)
    branched = model.ask((*messages, MORE))
    assert branched.branch
    assert branched.reused_tokens == len(first)  # the turn before any reasoning stands
    assert "Hm." not in model.text(branched)
    assert model.text(branched) == renderers["qwen3"].text(Request((*messages, MORE), model.tools))
    third = model.answer(branched, turn_of(style, 2))
    assert _goes_on(model.ask((*messages, MORE, turn_of(style, 2), *results(turn_of(style, 2)))), third)
    assert _goes_on(model.ask(messages), second)  # the first conversation is as it was


def test_reasoning_that_is_gone_already_cannot_be_dropped_again(renderers: dict[str, Renderer]) -> None:
    style = STYLES[0]
    model = Model(renderers["qwen3"], style)
    answer = Message(Speaker.ASSISTANT, "Done.", "Hm.")
    model.answer(model.ask((USER,)), answer)
    messages: tuple[Message, ...] = (USER, answer, MORE)
    prompt = model.ask(messages)
    assert prompt.branch
    for index in range(12):
        turn = turn_of(style, index, reasoning="", calls=index % 2)
        context = model.answer(prompt, turn)
        messages = (*messages, turn, *(results(turn) or (MORE,)))
        prompt = model.ask(messages)
        assert _goes_on(prompt, context)


def test_text_that_a_template_never_shows_beside_a_call_is_no_branch(renderers: dict[str, Renderer]) -> None:
    style = STYLES[1]
    assert style.name == "llama3"
    model = Model(renderers["llama3"], style)
    turn = replace(turn_of(style, 0), text="I look.")
    context = model.answer(model.ask((USER,)), turn)
    assert _goes_on(model.ask((USER, turn, *results(turn))), context)


def test_tools_that_move_with_the_last_user_message_make_a_branch(renderers: dict[str, Renderer]) -> None:
    style = STYLES[2]
    assert style.name == "mistral"
    turn = Message(Speaker.ASSISTANT, "Done.")
    for tools in (True, False):
        model = Model(renderers["mistral"], style, tools=tools)
        context = model.answer(model.ask((USER,)), turn)
        prompt = model.ask((USER, turn, MORE))
        assert _goes_on(prompt, context) is not tools
        assert model.text(prompt) == renderers["mistral"].text(Request((USER, turn, MORE), model.tools))


def test_a_turn_that_was_cut_is_closed_as_the_template_closes_it(renderers: dict[str, Renderer], style: Style) -> None:
    model = Model(renderers[style.name], style, tools=False)
    turn = Message(Speaker.ASSISTANT, "I was about to")
    context = model.answer(model.ask((USER,)), turn, ended=False)
    prompt = model.ask((USER, turn, MORE))
    assert _goes_on(prompt, context)
    assert model.text(prompt).endswith(
        renderers[style.name].text(Request((USER, turn, MORE))).partition("I was about to")[2]
    )


def test_changed_tools_or_rules_share_nothing_and_threads_keep_apart(renderers: dict[str, Renderer]) -> None:
    style = STYLES[0]
    model = Model(renderers["qwen3"], style)
    main, sub = turn_of(style, 0), turn_of(style, 1)
    main_context = model.answer(model.ask((SYSTEM, USER)), main)
    sub_start = model.ask((Message(Speaker.SYSTEM, "You are a helper."), USER))
    assert sub_start.reused_tokens == 0
    sub_context = model.answer(sub_start, sub)
    assert _goes_on(model.ask((SYSTEM, USER, main, *results(main))), main_context)
    helper = (Message(Speaker.SYSTEM, "You are a helper."), USER, sub, *results(sub))
    assert _goes_on(model.ask(helper), sub_context)
    other = model.history.prompt(Request((SYSTEM, USER, main, *results(main)), (replace(BASH, name="sh"),)))
    assert other.reused_tokens == 0
    assert other.branch


def test_a_compaction_branches_from_the_turn_that_it_shares(renderers: dict[str, Renderer]) -> None:
    style = STYLES[0]
    model = Model(renderers["qwen3"], style)
    turns = [turn_of(style, index) for index in range(3)]
    messages: tuple[Message, ...] = (SYSTEM, USER)
    contexts = []
    for turn in turns:
        contexts.append(model.answer(model.ask(messages), turn))
        messages = (*messages, turn, *results(turn))
    told = replace(messages[5], text=messages[5].text + "\nRespond with TEXT ONLY")
    compaction = model.ask((*messages[:5], told))
    assert _goes_on(compaction, contexts[1])
    summary = Message(Speaker.USER, "Summary: the file is there.")
    fresh = model.ask((SYSTEM, summary, turns[2], *results(turns[2])))
    assert fresh.reused_tokens == 0
    assert "Hm." in model.text(fresh)  # the kept turn reads as it was sampled


MALIGN = {
    "text": lambda turn: replace(turn, text="I looked."),
    "no text": lambda turn: replace(turn, text=""),
    "reasoning": lambda turn: replace(turn, reasoning="Other."),
    "id": lambda turn: replace(turn, tool_calls=(replace(turn.tool_calls[0], id="call_other"),)),
    "name": lambda turn: replace(turn, tool_calls=(replace(turn.tool_calls[0], name="sh"),)),
    "arguments": lambda turn: replace(turn, tool_calls=(replace(turn.tool_calls[0], arguments='{"command": "rm"}'),)),
    "more arguments": lambda turn: replace(
        turn, tool_calls=(replace(turn.tool_calls[0], arguments='{"command": "ls 1 0", "timeout": 1}'),)
    ),
    "no call": lambda turn: replace(turn, tool_calls=()),
    "another call": lambda turn: replace(turn, tool_calls=(*turn.tool_calls, ToolCall("call_b", "bash", "{}"))),
}


@pytest.mark.parametrize("change", MALIGN.values(), ids=MALIGN.keys())
def test_a_turn_that_says_something_else_is_context_only(renderers: dict[str, Renderer], change) -> None:
    style = STYLES[0]
    model = Model(renderers["qwen3"], style)
    first, second = turn_of(style, 0), turn_of(style, 1)
    context = model.answer(model.ask((USER,)), first)
    model.answer(model.ask((USER, first, *results(first))), second)
    changed = change(second)
    prompt = model.ask((USER, first, *results(first), changed, *results(second)))
    assert _goes_on(prompt, context)
    assert model.text(prompt) == renderers["qwen3"].text(
        Request((USER, first, *results(first), changed, *results(second)), model.tools)
    )


def test_a_directory_taken_off_a_command_changes_nothing(renderers: dict[str, Renderer]) -> None:
    style = STYLES[0]
    for directory, same in (("/workspace", True), ("'/my work'", True), ("/a; rm -rf /b", False)):
        model = Model(renderers["qwen3"], style)
        call = ToolCall("call_1", "bash", f'{{"command": "cd {directory} && make", "timeout": 10}}')
        turn = Message(Speaker.ASSISTANT, "", "", (call,))
        context = model.answer(model.ask((USER,)), turn)
        came = replace(turn, tool_calls=(replace(call, arguments='{"timeout": 10.0, "command": "make"}'),))
        prompt = model.ask((USER, came, *results(turn)))
        assert np.array_equal(prompt.input_ids[: len(context)], context) is same


def test_a_window_is_used_only_where_it_gives_what_the_whole_gives(renderers: dict[str, Renderer]) -> None:
    windowed = {name: renderer.seams.windowed for name, renderer in renderers.items()}
    assert windowed == {name: name != "numbering" for name in windowed}


def test_a_long_conversation_reads_in_a_window_as_it_reads_whole(renderers: dict[str, Renderer], style: Style) -> None:
    renderer = renderers[style.name]
    earlier: tuple[Message, ...] = (USER,)
    for index in range(20):
        turn = turn_of(style, index, calls=index % 3, reasoning="Hm." * (index % 2))
        if style.name == "mistral" and index % 3 == 0:
            turn = turn_of(style, index)  # its user messages must alternate with answers
        tail = results(turn) or (MORE,)
        for follow in (tail, (*tail, MORE), (*tail, Message(Speaker.SYSTEM, "Hurry."))):
            written = []
            for windowed in (True, False):
                renderer.seams.windowed = windowed and style.name != "numbering"
                thinks = any(m.reasoning and m.reasoning in renderer.text(Request((*earlier, turn))) for m in earlier)
                asked = Turn(earlier, turn, (BASH,), thinks, renderer.tokenizer.eos_token_id)
                try:
                    seam = renderer.seams.continuation(asked, follow)
                except BadRequestError:
                    written.append("refused")
                else:
                    written.append(None if seam is None else (seam.ids.tolist(), seam.cut))
            assert written[0] == written[1]
        earlier = (*earlier, turn, *tail)
    renderer.seams.windowed = style.name != "numbering"


def test_contexts_share_what_they_have_in_common(renderers: dict[str, Renderer]) -> None:
    style = STYLES[0]
    model = Model(renderers["qwen3"], style)
    messages: tuple[Message, ...] = (SYSTEM, USER)
    prompt = model.ask(messages)
    held = prompt.context.tail.size
    for index in range(30):
        turn = turn_of(style, index)
        model.answer(prompt, turn)
        messages = (*messages, turn, *results(turn))
        prompt = model.ask(messages)
        held += prompt.context.tail.size + prompt.context.parent.tail.size
    assert held == len(prompt.input_ids)


def test_halves_of_surrogate_pairs_are_no_crash(renderers: dict[str, Renderer]) -> None:
    prompt = History(renderers["qwen3"]).prompt(Request((Message(Speaker.USER, "a\ud800b"),)))
    assert len(prompt.input_ids)


def test_the_tree_of_an_agents_calls_has_one_leaf_for_each_true_fork(renderers: dict[str, Renderer]) -> None:
    style = STYLES[0]
    model = Model(renderers["qwen3"], style)
    calls: list[CallRecord] = []

    def talk(messages: tuple[Message, ...], turns: int) -> tuple[Message, ...]:
        for _ in range(turns):
            turn = turn_of(style, len(calls))
            prompt = model.ask(messages)
            output = model.answer(prompt, turn)[len(prompt.input_ids) :]
            logprobs = np.full(len(output), -1, np.float32)
            call = CallRecord("e", str(len(calls)), len(calls), prompt.input_ids, output, logprobs)
            calls.append(call)
            messages = (*messages, rewritten(turn, model.rng), *results(turn))
        return messages

    messages = talk((SYSTEM, USER), 6)
    assert len(build_tree(calls).leaf_node) == 1
    talk((*messages, MORE), 3)  # drops the reasoning so far
    talk((Message(Speaker.SYSTEM, "You are a helper."), USER), 3)
    tree = build_tree(calls)
    assert not tree.refused
    assert len(tree.leaf_node) == 3
    assert tree.sampled_tokens == sum(len(call.output_ids) for call in calls)


def test_what_a_template_refuses_is_a_bad_request(renderers: dict[str, Renderer]) -> None:
    two = turn_of(STYLES[0], 0, calls=2)
    with pytest.raises(BadRequestError, match="single tool-calls"):
        History(renderers["llama3"]).prompt(Request((USER, two, *results(two)), (BASH,)))


def test_a_tokenizer_that_is_not_there_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no tokenizer could be read"):
        Renderer(tmp_path)
