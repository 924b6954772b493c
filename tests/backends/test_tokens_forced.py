"""Calls that a harness demands: held to by a grammar in every format, and read back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokens_kit import BASH, STYLES, save_tokenizer

pytest.importorskip("transformers", reason="a tokenizer and its chat template need transformers")

from gyre.backends.engines.engine import Sampling
from gyre.backends.proxy.conversation import Message, Request, Speaker, Tool, ToolChoice
from gyre.backends.proxy.tokens import Parsers, Renderer, ReplyParser
from gyre.backends.proxy.tokens.json_calls import calls_schema
from gyre.backends.proxy.tokens.turns import as_message
from gyre.backends.proxy.wire import BadRequestError
from gyre.trajectory.call import Finish

USER = (Message(Speaker.USER, "go"),)
LOOK = Tool(
    "look",
    "Looks.",
    {"type": "object", "properties": {"at": {"$ref": "#/$defs/Place"}}, "$defs": {"Place": {"type": "string"}}},
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tokenizer(tmp_path_factory.mktemp("forced"), STYLES[0])


@pytest.mark.parametrize("parser", ["", "pythonic", "glm45"])
def test_a_format_without_a_grammar_gets_json(folder: Path, parser: str) -> None:
    if parser:
        pytest.importorskip("sglang", reason="the parser is SGLang's")
    renderer = Renderer(folder, parsers=Parsers(parser))
    request = Request(USER, (BASH, LOOK), ToolChoice("required", "look"), parallel_tool_calls=False)
    schema = json.loads(renderer.sampling(request, Sampling(9), 9).constraint["json_schema"])
    assert [call["properties"]["name"]["enum"] for call in schema["items"]["anyOf"]] == [["look"]]
    reply = ReplyParser(renderer, request)
    said = '[{"name": "look", "parameters": {"at":  "x"}}]'
    turn = as_message([*reply.feed(renderer.ids(said).tolist()), *reply.end(Finish.STOP)])
    assert [(call.name, call.arguments) for call in turn.tool_calls] == [("look", '{"at":  "x"}')]
    assert (turn.text, reply.finish) == ("", Finish.TOOL_CALLS)
    cut = ReplyParser(renderer, request)
    shown = as_message([*cut.feed(renderer.ids(said[:-9]).tolist()), *cut.end(Finish.LENGTH)])
    assert (shown.tool_calls, shown.text) == ((), said[:-9])  # cut off: text, not a call


def test_the_schema_is_one_that_a_grammar_can_be_made_of() -> None:
    xgrammar = pytest.importorskip("xgrammar")
    schema = calls_schema([BASH, LOOK], parallel=False)
    grammar = xgrammar.testing._json_schema_to_ebnf(json.dumps(schema))
    for said, allowed in (
        ('[{"name": "look", "parameters": {"at": "x"}}]', True),
        ('[{"name": "bash", "parameters": {"command": "ls"}}]', True),
        ('[{"name": "other", "parameters": {}}]', False),
        ("[]", False),
        ("I would rather not.", False),
    ):
        assert xgrammar.testing._is_grammar_accept_string(grammar, said) is allowed


def test_a_tool_that_is_not_there_is_a_clear_error(folder: Path) -> None:
    renderer = Renderer(folder, parsers=Parsers("qwen25"))
    request = Request(USER, (BASH,), ToolChoice("required", "nothing"))
    with pytest.raises(BadRequestError, match="'nothing', which is not among tools"):
        renderer.sampling(request, Sampling(9), 9)
