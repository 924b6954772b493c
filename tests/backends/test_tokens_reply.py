"""Replies read while they stream: by SGLang's parsers, whatever the chunks, and never with a crash."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokens_kit import BASH, STYLES, save_tokenizer

pytest.importorskip("transformers", reason="chat templates and tokenizers are transformers'")

from gyre.backends.engines.engine import Sampling
from gyre.backends.proxy.conversation import Message, Request, Speaker, Tool, ToolCall, ToolChoice
from gyre.backends.proxy.reply import ToolCallStart
from gyre.backends.proxy.tokens import Parsers, Renderer, ReplyParser, parsers
from gyre.backends.proxy.tokens.detokenizer import Detokenizer
from gyre.backends.proxy.tokens.hermes import HermesCalls, ThinkTags
from gyre.backends.proxy.tokens.turns import as_message
from gyre.errors import InputError
from gyre.trajectory.call import Finish

SPAWN = Tool("spawn", "Start a helper.", {"type": "object", "properties": {}}, "agents")
USER = (Message(Speaker.USER, "create hello.txt"),)
REQUEST = Request(USER, (BASH, SPAWN))
CALL = '<tool_call>\n{"name": "bash", "arguments": {"command":   "ls\\n \\u00e9"}}\n</tool_call>'
RAW = '{"command":   "ls\\n \\u00e9"}'


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return {s.name: str(save_tokenizer(tmp_path_factory.mktemp(s.name), s)) for s in STYLES}


@pytest.fixture(scope="module")
def qwen(folders: dict[str, str]) -> Renderer:
    pytest.importorskip("sglang", reason="tool calls and reasoning are read by SGLang's parsers")
    return Renderer(folders["qwen3"], parsers=Parsers("qwen25", "qwen3"))


def _read(
    renderer: Renderer, text: str, chunks: Sequence[int] = (3,), request: Request = REQUEST
) -> tuple[Message, ReplyParser]:
    """Read a reply in chunks of so many tokens, by turns; call ids are numbered, so that replies can be compared."""
    parser = ReplyParser(renderer, request)
    ids = [*renderer.ids(text).tolist(), renderer.tokenizer.eos_token_id]
    deltas, at, turn = [], 0, 0
    while at < len(ids):
        deltas += parser.feed(ids[at : at + chunks[turn % len(chunks)]])
        at, turn = at + chunks[turn % len(chunks)], turn + 1
    deltas += parser.end(Finish.STOP)
    message = as_message(deltas)
    assert all(re.fullmatch(r"call_[A-Za-z0-9]{24}", call.id) for call in message.tool_calls)
    calls = [ToolCall(str(k), c.name, c.arguments, c.namespace) for k, c in enumerate(message.tool_calls)]
    return Message(message.speaker, message.text, message.reasoning, tuple(calls)), parser


REPLIES = {
    "all": (
        f"<think>\nhm é 漢字 🎉\n</think>\n\nI look.\n{CALL}\n"
        '<tool_call>\n{"arguments": {}, "name": "agents__spawn"}\n</tool_call>',
        "I look.",
        "hm é 漢字 🎉\n",
        [("bash", RAW, ""), ("spawn", "{}", "agents")],
    ),
    "text": ("  plain <b>text</b> {x} \n\n", "  plain <b>text</b> {x} \n\n", "", []),
    "cut in a call's start": ("I look <tool", "I look <tool", "", []),
    "cut in reasoning": ("<think>\nlet me", "", "let me", []),
    "cut in a call": ('I look.\n<tool_call>\n{"name": "bash", "argum', None, "", []),
    "no JSON": ('<tool_call>\n{"name": "bash", "arguments": {"command": "ls }\n</tool_call>', None, "", []),
    "no object": ("<tool_call>\n7\n</tool_call>", None, "", []),
    "no name": ('<tool_call>\n{"arguments": {}}\n</tool_call>', None, "", []),
    "unknown tool": ('<tool_call>\n{"name": "nope", "arguments": {}}\n</tool_call>', None, "", []),
    "a call that holds one": (
        '<tool_call>\n{"name": "bash", "arguments": {"command": "<tool_call>\\n</tool_call>"}}\n</tool_call>',
        "",
        "",
        [("bash", '{"command": "<tool_call>\\n</tool_call>"}', "")],
    ),
    "good after bad": (
        f"<tool_call>\nno\n</tool_call>\n{CALL}",
        "<tool_call>\nno\n</tool_call>\n",
        "",
        [("bash", RAW, "")],
    ),
}


@pytest.mark.parametrize("case", REPLIES.values(), ids=REPLIES.keys())
@pytest.mark.parametrize("chunks", [(1,), (3,), (1000,), (2, 5, 1)])
def test_a_reply_is_read_alike_in_any_chunks(qwen: Renderer, case, chunks) -> None:
    written, text, reasoning, calls = case
    message, parser = _read(qwen, written, chunks)
    assert message.text == (written if text is None else text)  # what is malformed comes as it is
    assert message.reasoning == reasoning
    assert [(call.name, call.arguments, call.namespace) for call in message.tool_calls] == calls
    assert parser.finish is (Finish.TOOL_CALLS if calls else Finish.STOP)


FORMATS = {
    "llama3": '{"name": "bash", "parameters": {"command":  "ls"}}',
    "mistral": 'hi [TOOL_CALLS] [{"name": "bash", "arguments": {"command":  "ls"}}]',
    "deepseekv3": "hi <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>bash\n```json\n"
    '{"command":  "ls"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    "kimi_k2": "hi<|tool_calls_section_begin|><|tool_call_begin|>functions.bash:0<|tool_call_argument_begin|>"
    '{"command":  "ls"}<|tool_call_end|><|tool_calls_section_end|>',
    "hermes": 'hi <tool_call>{"name":"bash","arguments":{"command":  "ls"}}</tool_call>',
    "qwen3_coder": "hi\n<tool_call>\n<function=bash>\n<parameter=command>\nls\n</parameter>\n</function>\n</tool_call>",
    "glm45": "hi\n<tool_call>bash\n<arg_key>command</arg_key>\n<arg_value>ls</arg_value>\n</tool_call>",
    "pythonic": '[bash(command="ls")]',
}


@pytest.mark.parametrize("name", FORMATS)
def test_the_formats_of_sglangs_parsers(folders: dict[str, str], name: str) -> None:
    pytest.importorskip("sglang")
    renderer = Renderer(folders["qwen3"], parsers=Parsers(name))
    message, _ = _read(renderer, FORMATS[name])
    (call,) = message.tool_calls
    assert message.text == ("hi" if FORMATS[name].startswith("hi") else "")
    assert call.name == "bash"
    raw = '{"command":  "ls"}'
    assert call.arguments == (raw if raw in FORMATS[name] else '{"command": "ls"}')
    assert _read(renderer, "plain [x] {y} text")[0].text == "plain [x] {y} text"


@settings(max_examples=150)
@given(
    text=st.text(st.sampled_from('ab <>tool_call/\n{}":,é漢🎉'), max_size=60),
    chunks=st.lists(st.integers(1, 9), min_size=1),
)
def test_whatever_a_model_writes_nothing_is_lost_and_nothing_crashes(qwen: Renderer, text: str, chunks) -> None:
    message, _ = _read(qwen, text, chunks)
    assert message.text == text
    assert not message.tool_calls


@settings(max_examples=150)
@given(data=st.data())
def test_any_tokens_at_all_can_be_read(qwen: Renderer, data: st.DataObject) -> None:
    ids = data.draw(st.lists(st.integers(0, len(qwen.tokenizer) - 1), max_size=60))
    parser = ReplyParser(qwen, REQUEST)
    deltas = [delta for token in ids for delta in parser.feed([token])] + parser.end(Finish.LENGTH)
    assert as_message(deltas).speaker is Speaker.ASSISTANT


@settings(max_examples=200)
@given(text=st.text(max_size=80), chunks=st.lists(st.integers(1, 40), min_size=1))
def test_text_comes_out_whole_in_any_chunks(qwen: Renderer, text: str, chunks: list[int]) -> None:
    ids = qwen.ids(text).tolist()
    words = Detokenizer(qwen.tokenizer)
    shown, at, turn = "", 0, 0
    while at < len(ids):
        size = chunks[turn % len(chunks)]
        shown += words.feed(ids[at : at + size])
        at, turn = at + size, turn + 1
    assert shown + words.end() == qwen.tokenizer.decode(ids)


class _ByTransformers:
    """A tokenizer that decodes as transformers does, whatever the one behind it could do faster."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def decode(self, ids: list[int], **options: bool) -> str:
        return self._tokenizer.decode(ids, **options)


def _own_decode(tokenizer: Any) -> Any:
    """The tokenizer, of a class that decodes in its own way."""
    kind = type(tokenizer)
    return type("Shouting", (kind,), {"decode": lambda self, *a, **k: kind.decode(self, *a, **k).upper()})


@settings(max_examples=300)
@given(data=st.data())
def test_every_piece_of_text_is_what_transformers_decodes(qwen: Renderer, data: st.DataObject) -> None:
    anything = st.lists(st.integers(0, len(qwen.tokenizer) - 1), max_size=6)
    special = st.sampled_from([[token] for token in sorted(qwen.special_ids)])
    pieces = st.text(st.sampled_from("é漢🎉 a\n"), max_size=4).map(lambda text: qwen.ids(text).tolist())  # bytes
    ids = [token for run in data.draw(st.lists(anything | special | pieces, max_size=20)) for token in run]
    fast, slow = Detokenizer(qwen.tokenizer), Detokenizer(_ByTransformers(qwen.tokenizer))
    while ids:
        size = data.draw(st.integers(1, 9))
        assert fast.feed(ids[:size]) == slow.feed(ids[:size])
        ids = ids[size:]
    assert fast.end() == slow.end()


def test_a_tokenizer_that_decodes_in_its_own_way_is_let_to(folders: dict[str, str]) -> None:
    tokenizer = Renderer(folders["glm"]).tokenizer
    tokenizer.__class__ = _own_decode(tokenizer)
    assert Detokenizer(tokenizer).feed(tokenizer.encode("quick", add_special_tokens=False)) == "QUICK"


def test_a_stop_string_and_what_follows_stay_out_of_the_text(qwen: Renderer) -> None:
    request = Request(USER, (BASH,), stop=("STOP", "END."))
    for chunks in ((1,), (4,), (100,)):
        message, parser = _read(qwen, "I say ST and then STOP and END.", chunks, request)
        assert message.text == "I say ST and then "
        assert parser.stop_sequence == "STOP"
        message, parser = _read(qwen, "I say EN", chunks, request)
        assert message.text == "I say EN"
        assert parser.stop_sequence == ""


def test_reasoning_that_the_template_opened_is_reasoning_from_the_start(folders: dict[str, str]) -> None:
    pytest.importorskip("sglang")
    for name in ("qwen3", "deepseek-r1"):
        renderer = Renderer(folders["stripping"], parsers=Parsers("qwen25", name))
        message, parser = _read(renderer, "hm\n</think>\n\nDone.")
        assert (message.reasoning, message.text) == ("hm\n", "Done.")
        assert parser.reasoning_tokens > 0


def test_tools_that_must_not_be_called_are_text(qwen: Renderer) -> None:
    message, _ = _read(qwen, CALL, request=Request(USER, (BASH,), ToolChoice("none")))
    assert message.text == CALL


def test_a_call_comes_after_the_text_before_it(qwen: Renderer) -> None:
    parser = ReplyParser(qwen, REQUEST)
    early = parser.feed(qwen.ids(f"I look.\n{CALL}").tolist())
    assert as_message(early).text == "I look."
    assert isinstance(parser.end(Finish.STOP)[0], ToolCallStart)


@pytest.mark.parametrize("written", [case[0] for case in REPLIES.values()], ids=REPLIES.keys())
def test_the_built_in_parsers_read_what_sglangs_read(qwen: Renderer, written: str) -> None:
    from sglang.srt.parser.reasoning_parser import ReasoningParser

    by_sglang = Parsers("hermes").call_format(REQUEST.tools, qwen.tokenizer)
    assert by_sglang is not None
    built_in = HermesCalls(frozenset(("bash", "agents__spawn")))
    block = written[written.find("<tool_call>") :] if "<tool_call>" in written else ""
    if written != REPLIES["good after bad"][0] and written != REPLIES["a call that holds one"][0]:
        assert [(n, json.loads(a)) for n, a in built_in.calls(block)] == [
            (n, json.loads(a)) for n, a in by_sglang.calls(block)
        ]
    theirs, ours = ReasoningParser("qwen3"), ThinkTags(opened=False)
    for size in (1, 4):
        pieces = [written[at : at + size] for at in range(0, len(written), size)]
        theirs, ours = ReasoningParser("qwen3"), ThinkTags(opened=False)
        split = [[p.parse_stream_chunk(piece) for piece in pieces] + [p.parse_stream_end()] for p in (theirs, ours)]
        assert ["".join(part or "" for part in column) for column in zip(*split[0], strict=True)] == [
            "".join(part or "" for part in column) for column in zip(*split[1], strict=True)
        ]


def test_qwen_and_hermes_are_read_without_sglang_too(folders: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsers, "_sglang_tools", lambda: None)
    monkeypatch.setattr(parsers, "_sglang_reasoning", lambda: None)
    renderer = Renderer(folders["qwen3"], parsers=Parsers("qwen25", "qwen3"))
    for chunks in ((1,), (3,), (1000,)):
        written, text, reasoning, calls = REPLIES["all"]
        message, _ = _read(renderer, written, chunks)
        assert (message.text, message.reasoning) == (text, reasoning)
        assert [(call.name, call.arguments, call.namespace) for call in message.tool_calls] == calls
    tag = renderer.sampling(Request(USER, (BASH,), ToolChoice("required")), Sampling(9), 9).constraint["structural_tag"]
    assert json.loads(tag)["structures"][0]["begin"] == '<tool_call>\n{"name": "bash", "arguments": '
    with pytest.raises(InputError, match="pip install sglang"):
        Parsers("kimi_k2").load()


def test_a_parser_that_is_not_there_is_an_error_that_names_those_that_are() -> None:
    pytest.importorskip("sglang")
    with pytest.raises(InputError, match=r"no tool-call parser 'qwen9'; SGLang has .*qwen25"):
        Parsers("qwen9").load()
    with pytest.raises(InputError, match="no reasoning parser 'r9'"):
        Parsers("", "r9").load()


def test_sampling_is_gyres_with_what_a_harness_may_ask(qwen: Renderer) -> None:
    settings_ = Sampling(1000, temperature=0.7, stop=("never",))
    asked = qwen.sampling(Request(USER, max_tokens=50, stop=("STOP",)), settings_, room=10_000)
    assert (asked.max_new_tokens, asked.temperature, asked.stop) == (50, 0.7, ("never", "STOP"))
    assert asked.stop_token_ids == (qwen.tokenizer.eos_token_id,)
    assert qwen.sampling(Request(USER, max_tokens=5000), settings_, room=300).max_new_tokens == 300
    assert qwen.sampling(Request(USER, max_tokens=0), settings_, room=-5).max_new_tokens == 1


def test_forms_that_a_harness_demands_become_grammars(qwen: Renderer) -> None:
    schema = {"type": "object", "properties": {"title": {"type": "string"}}}
    assert qwen.sampling(Request(USER), Sampling(9), 9).constraint == {}
    assert qwen.sampling(REQUEST, Sampling(9), 9).constraint == {}
    found = qwen.sampling(Request(USER, json_schema=schema), Sampling(9), 9).constraint
    assert json.loads(found["json_schema"]) == schema
    named = Request(USER, (BASH, SPAWN), ToolChoice("required", "spawn"))
    tag = json.loads(qwen.sampling(named, Sampling(9), 9).constraint["structural_tag"])
    assert [structure["begin"] for structure in tag["structures"]] == [
        '<tool_call>\n{"name":"agents__spawn", "arguments":'
    ]


def test_a_grammar_lets_the_model_call_and_not_answer(qwen: Renderer) -> None:
    backend = pytest.importorskip("sglang.srt.constrained.xgrammar_backend")
    eos = qwen.tokenizer.eos_token_id
    made = backend.XGrammarGrammarBackend(qwen.tokenizer, len(qwen.tokenizer), [eos])
    asked = qwen.sampling(Request(USER, (BASH,), ToolChoice("required")), Sampling(9), 9)
    called = '<tool_call>\n{"name":"bash", "arguments":{"command": "ls"}}\n</tool_call>'
    for text, allowed in ((called, True), ("I would rather not.", False)):
        grammar = made.dispatch_structural_tag(asked.constraint["structural_tag"])
        if allowed:
            for token in [*qwen.ids(text).tolist(), eos]:
                grammar.accept_token(token)
            assert grammar.is_terminated()
        else:
            with pytest.raises(ValueError, match="not accepted"):
                grammar.accept_token(qwen.ids(text)[0])


def test_tokens_are_counted_as_the_template_writes_them(qwen: Renderer) -> None:
    ids = qwen.tokenizer.apply_chat_template(
        [{"role": "user", "content": "create hello.txt"}], add_generation_prompt=True, return_dict=False
    )
    assert qwen.count(Request(USER)) == len(ids)
