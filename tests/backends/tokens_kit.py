"""Chat templates of several habits, a small tokenizer for them, and a stand-in for a model that samples."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gyre.backends.proxy.conversation import Message, Speaker, Tool, ToolCall
from gyre.backends.proxy.reply import Delta, ReasoningDelta, TextDelta, ToolCallArguments, ToolCallStart

_SPECIAL = (
    "<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>",
    "<|end_header_id|>", "[INST]", "[/INST]", "[TOOL_CALLS]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[gMASK]", "<|user|>", "<|assistant|>", "<|observation|>", "<|system|>",
)  # fmt: skip
_CORPUS = (
    "The quick brown fox. You are a coding agent.",
    '{"command": "ls -la", "path": "src/main.py"}',
    "0 1 2 3 4 5",
)

# Like Qwen3's: earlier reasoning goes once a user message comes; results of tools share one user turn.
QWEN3 = r"""
{%- if tools %}
{{- '<|im_start|>system\n' }}
{%- if messages[0].role == 'system' %}{{- messages[0].content + '\n\n' }}{%- endif %}
{{- '# Tools\n<tools>' }}
{%- for tool in tools %}{{- '\n' }}{{- tool | tojson }}{%- endfor %}
{{- '\n</tools><|im_end|>\n' }}
{%- elif messages[0].role == 'system' %}
{{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
{%- endif %}
{%- set ns = namespace(searching=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
{%- set index = (messages|length - 1) - loop.index0 %}
{%- if ns.searching and message.role == "user" and message.content is string
   and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
{%- set ns.searching = false %}{%- set ns.last_query_index = index %}
{%- endif %}
{%- endfor %}
{%- for message in messages %}
{%- set content = message.content if message.content is string else '' %}
{%- if message.role == "user" or (message.role == "system" and not loop.first) %}
{{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>\n' }}
{%- elif message.role == "assistant" %}
{%- set reasoning_content = '' %}
{%- if message.reasoning_content is string %}{%- set reasoning_content = message.reasoning_content %}{%- endif %}
{{- '<|im_start|>assistant\n' }}
{%- if loop.index0 > ns.last_query_index and (loop.last or reasoning_content) %}
{{- '<think>\n' + reasoning_content.strip('\n') + '\n</think>\n\n' + content.lstrip('\n') }}
{%- else %}{{- content }}{%- endif %}
{%- for tool_call in message.tool_calls or [] %}
{%- if (loop.first and content) or not loop.first %}{{- '\n' }}{%- endif %}
{%- set tool_call = tool_call.function or tool_call %}
{{- '<tool_call>\n{"name": "' + tool_call.name + '", "arguments": ' }}
{{- tool_call.arguments if tool_call.arguments is string else tool_call.arguments | tojson }}
{{- '}\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\n' }}
{%- elif message.role == "tool" %}
{%- if loop.first or messages[loop.index0 - 1].role != "tool" %}{{- '<|im_start|>user' }}{%- endif %}
{{- '\n<tool_response>\n' + content + '\n</tool_response>' }}
{%- if loop.last or messages[loop.index0 + 1].role != "tool" %}{{- '<|im_end|>\n' }}{%- endif %}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}
""".strip()

# Like Llama 3.1's: tools in the first user message, parsed arguments, one call a turn, no text beside it.
LLAMA3 = r"""
{{- '<|begin_of_text|>' }}
{%- if messages[0].role == 'system' %}
{%- set system = messages[0].content | trim %}{%- set messages = messages[1:] %}
{%- else %}{%- set system = '' %}{%- endif %}
{{- '<|start_header_id|>system<|end_header_id|>\n\n' + system + '<|eot_id|>' }}
{%- if tools %}
{%- set first = messages[0].content | trim %}{%- set messages = messages[1:] %}
{{- '<|start_header_id|>user<|end_header_id|>\n\nFunctions:\n\n' }}
{%- for t in tools %}{{- t | tojson(indent=4) }}{{- '\n\n' }}{%- endfor %}
{{- first + '<|eot_id|>' }}
{%- endif %}
{%- for message in messages %}
{%- if not (message.role == 'tool' or message.tool_calls) %}
{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' + message.content | trim + '<|eot_id|>' }}
{%- elif message.tool_calls %}
{%- if message.tool_calls | length != 1 %}
{{- raise_exception('This model only supports single tool-calls at once!') }}{%- endif %}
{%- set call = message.tool_calls[0].function %}
{{- '<|start_header_id|>assistant<|end_header_id|>\n\n{"name": "' + call.name + '", "parameters": ' }}
{{- call.arguments | tojson }}{{- '}<|eot_id|>' }}
{%- else %}
{{- '<|start_header_id|>ipython<|end_header_id|>\n\n' }}
{{- message.content | tojson if message.content is mapping else message.content }}{{- '<|eot_id|>' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif %}
""".strip()

# Like Mistral's: tools move before the last user message, roles alternate, ids are nine letters and digits.
MISTRAL = r"""
{%- if messages[0].role == 'system' %}{%- set system = messages[0].content %}{%- set rest = messages[1:] %}
{%- else %}{%- set rest = messages %}{%- endif %}
{%- set users = rest | selectattr('role', 'equalto', 'user') | list %}
{%- set ns = namespace(index=0) %}
{%- for message in rest %}
{%- if not (message.role == 'tool' or message.tool_calls) %}
{%- if (message.role == 'user') != (ns.index % 2 == 0) %}
{{- raise_exception('conversation roles must alternate user/assistant') }}{%- endif %}
{%- set ns.index = ns.index + 1 %}
{%- endif %}
{%- endfor %}
{{- '<s>' }}
{%- for message in rest %}
{%- if message.role == 'user' %}
{%- if tools and message == users[-1] %}
{{- '[AVAILABLE_TOOLS]' }}{{- tools | tojson }}{{- '[/AVAILABLE_TOOLS]' }}
{%- endif %}
{%- if loop.last and system is defined %}{{- '[INST]' + system + '\n\n' + message.content + '[/INST]' }}
{%- else %}{{- '[INST]' + message.content + '[/INST]' }}{%- endif %}
{%- elif message.tool_calls %}
{{- '[TOOL_CALLS][' }}
{%- for call in message.tool_calls %}
{%- if call.id is not defined or call.id | length != 9 %}
{{- raise_exception('Tool call IDs should be alphanumeric strings with length 9!') }}{%- endif %}
{{- call.function | tojson }}{{- ']</s>' if loop.last else ', ' }}
{%- endfor %}
{%- elif message.role == 'assistant' %}{{- ' ' + message.content + '</s>' }}
{%- elif message.role == 'tool' %}
{{- '[TOOL_RESULTS]{"content": ' + message.content + ', "call_id": "' + message.tool_call_id + '"}[/TOOL_RESULTS]' }}
{%- endif %}
{%- endfor %}
""".strip()

# Strips all content, and shows no earlier reasoning at all, as DeepSeek-R1's.
STRIPPING = r"""
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\n' }}
{%- if message.role == 'assistant' %}{{- message.content.split('</think>')[-1] | trim }}
{%- else %}{{- message.content | trim }}{%- endif %}
{%- for call in message.tool_calls or [] %}
{%- set arguments = call.function.arguments %}
{{- '\n<tool_call>\n' + call.function.name + '\n' }}
{{- arguments if arguments is string else arguments | tojson }}{{- '\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n<think>\n' }}{%- endif %}
""".strip()

# Like GLM's: nothing ends a turn but the next one's first token, which the model samples.
GLM = r"""
{{- '[gMASK]' }}
{%- for message in messages %}
{%- if message.role == 'assistant' %}
{{- '<|assistant|>\n' }}
{%- if message.reasoning_content %}{{- '<think>' + message.reasoning_content.strip() + '</think>\n' }}{%- endif %}
{{- message.content }}
{%- for call in message.tool_calls or [] %}
{{- '\n<tool_call>' + call.function.name + '\n' }}
{%- for key, value in call.function.arguments.items() %}
{{- '<arg_key>' + key + '</arg_key>\n<arg_value>' }}
{{- value if value is string else value | tojson }}{{- '</arg_value>\n' }}
{%- endfor %}
{{- '</tool_call>' }}
{%- endfor %}
{%- elif message.role == 'tool' %}
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{- '<|observation|>' }}{%- endif %}
{{- '\n<tool_response>\n' + message.content + '\n</tool_response>' }}
{%- else %}{{- '<|' + message.role + '|>\n' + message.content }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|assistant|>\n' }}{%- endif %}
""".strip()

# Looks far back: each turn has its number.
NUMBERING = r"""
{%- for message in messages %}
{{- '<|im_start|>' + message.role + ' ' + loop.index | string + '\n' + message.content }}
{%- for call in message.tool_calls or [] %}{{- '\n<tool_call>' + call.function.arguments }}{%- endfor %}
{{- '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant ' + (messages | length + 1) | string + '\n' }}{%- endif %}
""".strip()


def _qwen(turn: Message) -> str:
    calls = [f'<tool_call>\n{{"name": "{c.name}", "arguments": {c.arguments}}}\n</tool_call>' for c in turn.tool_calls]
    thought = f"<think>\n{turn.reasoning}\n</think>\n\n" if turn.reasoning else ""
    return thought + "\n".join([turn.text] * bool(turn.text) + calls)


def _stripping(turn: Message) -> str:
    calls = "".join(f"\n<tool_call>\n{c.name}\n{c.arguments}\n</tool_call>" for c in turn.tool_calls)
    return f"{turn.reasoning}\n</think>\n\n{turn.text}{calls}"


def _glm(turn: Message) -> str:
    calls = ""
    for call in turn.tool_calls:
        calls += f"\n<tool_call>{call.name}\n"
        for key, value in json.loads(call.arguments).items():
            written = value if isinstance(value, str) else json.dumps(value)
            calls += f"<arg_key>{key}</arg_key>\n<arg_value>{written}</arg_value>\n"
        calls += "</tool_call>"
    return (f"<think>{turn.reasoning}</think>\n" if turn.reasoning else "") + turn.text + calls


def _mistral(turn: Message) -> str:
    calls = ", ".join(f'{{"name": "{c.name}", "arguments": {c.arguments}}}' for c in turn.tool_calls)
    return f"[TOOL_CALLS][{calls}]" if calls else f" {turn.text}"


@dataclass(frozen=True)
class Style:
    """A template, how a model of its kind writes a turn, and what that turn may hold."""

    name: str
    template: str
    eos: str
    speak: Callable[[Message], str]
    parts: tuple[str, ...] = ("text", "reasoning", "calls")  # what one turn may hold
    most_calls: int = 2
    both: bool = True  # text and calls in one turn


STYLES = (
    Style("qwen3", QWEN3, "<|im_end|>", _qwen),
    Style(
        "llama3",
        LLAMA3,
        "<|eot_id|>",
        lambda turn: (
            f'{{"name": "{turn.tool_calls[0].name}", "parameters": {turn.tool_calls[0].arguments}}}'
            if turn.tool_calls
            else turn.text
        ),
        ("text", "calls"),
        1,
        both=False,
    ),
    Style("mistral", MISTRAL, "</s>", _mistral, ("text", "calls"), both=False),
    Style("stripping", STRIPPING, "<|im_end|>", _stripping),
    Style("glm", GLM, "<|observation|>", _glm),
    Style("numbering", NUMBERING, "<|im_end|>", lambda turn: turn.text, ("text",)),
)
BASH = Tool("bash", "Run a command.", {"type": "object", "properties": {"command": {"type": "string"}}})


def save_tokenizer(folder: Path, style: Style) -> Path:
    """Write a byte-level tokenizer with the style's chat template."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(_CORPUS * 20, trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet))
    made.add_special_tokens([AddedToken(word, special=True, normalized=False) for word in _SPECIAL])
    made.add_tokens([AddedToken(word, normalized=False) for word in ("<tool_call>", "</tool_call>")])
    fast = PreTrainedTokenizerFast(tokenizer_object=made, eos_token=style.eos)
    fast.chat_template = style.template
    fast.save_pretrained(folder)
    if style.name == "glm":
        ids = fast.convert_tokens_to_ids(["<|user|>", "<|observation|>"])
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ids}))
    return folder


def sampled(tokenizer: object, text: str, rng: random.Random) -> list[int]:
    """Tokens for `text` with boundaries where no tokenizer would put them."""
    ids: list[int] = []
    while text:
        size = rng.randint(1, 7)
        ids += tokenizer.encode(text[:size], add_special_tokens=False)  # type: ignore[attr-defined]
        text = text[size:]
    return ids


def deltas(turn: Message) -> list[Delta]:
    """The pieces of a reply."""
    made: list[Delta] = [ReasoningDelta(turn.reasoning)] * bool(turn.reasoning)
    made += [TextDelta(turn.text)] * bool(turn.text)
    for index, call in enumerate(turn.tool_calls):
        made += [ToolCallStart(index, call.id, call.name), ToolCallArguments(index, call.arguments)]
    return made


def turn_of(style: Style, index: int, *, calls: int = 1, text: str = "I look.", reasoning: str = "Hm.") -> Message:
    """A turn such as the style allows; with calls, text only where both may stand."""
    count = min(calls, style.most_calls) if "calls" in style.parts else 0
    return Message(
        Speaker.ASSISTANT,
        text if not count or style.both else "",
        reasoning if "reasoning" in style.parts else "",
        tuple(ToolCall(f"call_{index:022d}{k:02d}", "bash", f'{{"command": "ls {index} {k}"}}') for k in range(count)),
    )


def results(turn: Message, text: str = "out") -> tuple[Message, ...]:
    """The tools' answers."""
    return tuple(Message(Speaker.TOOL, f'"{text}"', tool_call_id=call.id) for call in turn.tool_calls)


def rewritten(turn: Message, rng: random.Random) -> Message:
    """The turn as harnesses write it anew, without changing what it says."""
    calls = tuple(replace(call, arguments=_reserialised(call.arguments, rng)) for call in turn.tool_calls)
    text = rng.choice([turn.text, turn.text + "\n", turn.text.strip()])
    return replace(turn, text=text, reasoning=rng.choice([turn.reasoning, ""]), tool_calls=calls)


def _reserialised(arguments: str, rng: random.Random) -> str:
    try:
        value = json.loads(arguments)
    except ValueError:
        return arguments
    if isinstance(value, dict):
        keys = list(value)
        rng.shuffle(keys)
        value = {key: value[key] for key in keys}
    separators = rng.choice([None, (",", ":"), (" , ", " : ")])
    return json.dumps(value, ensure_ascii=rng.random() < 0.5, separators=separators, indent=rng.choice([None, 2]))


def say(speaker: Speaker, *texts: str) -> Sequence[Message]:
    """Messages of one speaker."""
    return tuple(Message(speaker, text) for text in texts)
