"""Chat templates are shown what they take: found out by trying, not by their names."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokens_kit import BASH, STYLES, results, save_tokenizer, turn_of

pytest.importorskip("transformers", reason="chat templates and tokenizers are transformers'")

from gyre.backends.proxy.conversation import Message, Request, Speaker, Tool, ToolCall
from gyre.backends.proxy.tokens import Renderer

SYSTEM = Message(Speaker.SYSTEM, "You are a coding agent.")
USER = Message(Speaker.USER, "create hello.txt")

# Like Gemma's: no system message, roles alternate, the model's turn has another name.
STRICT = r"""
{%- if messages[0].role == 'system' %}{{- raise_exception('System role not supported') }}{%- endif %}
{%- for message in messages %}
{%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}
{{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{%- endif %}
{%- set role = 'model' if message.role == 'assistant' else message.role %}
{{- '<|im_start|>' + role + '\n' + message.content | trim + '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>model\n' }}{%- endif %}
""".strip()

PARTS = r"""
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\n' }}
{%- for part in message.content %}{{- part.text if part.type == 'text' else '' }}{%- endfor %}{{- '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}
""".strip()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tokenizer(tmp_path_factory.mktemp("qwen3"), STYLES[0])


def test_what_is_found_out_of_each_template(tmp_path: Path) -> None:
    found = {style.name: Renderer(save_tokenizer(tmp_path / style.name, style)).template.habits for style in STYLES}
    assert {name for name, habits in found.items() if not habits.raw_arguments} == {"llama3", "mistral", "glm"}
    assert {name for name, habits in found.items() if habits.reasoning_key == "reasoning_content"} == {"qwen3", "glm"}
    assert {name for name, habits in found.items() if not habits.adjacent_users} == {"mistral"}
    assert {name for name, habits in found.items() if not habits.long_ids} == {"mistral"}


def test_arguments_stand_word_for_word_where_the_template_lets_them(tmp_path: Path) -> None:
    for style in STYLES[:2]:
        renderer = Renderer(save_tokenizer(tmp_path / style.name, style))
        call = ToolCall("call_1", "bash", '{"command":   "ls"}')
        turn = Message(Speaker.ASSISTANT, "", "", (call,))
        text = renderer.text(Request((USER, turn, *results(turn)), (BASH,)))
        assert ('{"command":   "ls"}' in text) is (style.name == "qwen3")
        assert ('{"command": "ls"}' in text) is (style.name == "llama3")


def test_nothing_is_left_out_for_a_template_that_takes_little(folder: Path) -> None:
    renderer = Renderer(folder, template=STRICT)
    late = Message(Speaker.SYSTEM, "Hurry.")
    messages = (SYSTEM, USER, Message(Speaker.ASSISTANT, "Done."), late, USER)
    assert renderer.text(Request(messages)) == (
        "<|im_start|>user\nYou are a coding agent.\n\ncreate hello.txt<|im_end|>\n"
        "<|im_start|>model\nDone.<|im_end|>\n"
        "<|im_start|>user\nHurry.\n\ncreate hello.txt<|im_end|>\n<|im_start|>model\n"
    )


def test_content_in_parts_where_the_template_wants_it(folder: Path) -> None:
    renderer = Renderer(folder, template=PARTS)
    assert renderer.text(Request((USER,))) == ("<|im_start|>user\ncreate hello.txt<|im_end|>\n<|im_start|>assistant\n")


def test_namespaces_are_part_of_a_tools_name(folder: Path) -> None:
    spawn = Tool("spawn", "Start a helper.", {"type": "object"}, "agents")
    turn = Message(Speaker.ASSISTANT, "", "", (ToolCall("call_1", "spawn", "{}", "agents"),))
    text = Renderer(folder).text(Request((USER, turn, *results(turn)), (spawn,)))
    assert text.count("agents__spawn") == 2


def test_template_settings_reach_the_template(folder: Path) -> None:
    template = "{{ messages[0].content }}{{ '<think></think>' if enable_thinking is false else '' }}"
    assert (
        Renderer(folder, template=template, template_kwargs={"enable_thinking": False})
        .text(Request((USER,)))
        .endswith("<think></think>")
    )


def test_a_turn_of_each_shape_is_written(tmp_path: Path) -> None:
    for style in STYLES:
        renderer = Renderer(save_tokenizer(tmp_path / style.name, style))
        turn = turn_of(style, 1)
        answer = results(turn) or (USER,)
        assert renderer.count(Request((USER, turn, *answer))) > renderer.count(Request((USER,)))
