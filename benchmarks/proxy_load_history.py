"""What a call costs before it goes to an engine: each of a long conversation is read, matched and tokenised."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gyre.backends.proxy.reply import TextDelta, ToolCallArguments, ToolCallStart
from gyre.backends.proxy.tokens import History, Renderer
from gyre.backends.proxy.wires import WIRES, read_json

CALLS: Final = 500
RESULT_CHARACTERS: Final = 330  # of a tool's result: 100,000 tokens in the end
TOOLS: Final = tuple(
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "What it does, at some length. " * 10,
            "parameters": {"type": "object", "properties": {"path": {"type": "string", "description": "Which file."}}},
        },
    }
    for name in ("bash", "read", "write", "edit", "search")
)


@dataclass(frozen=True, slots=True)
class HistoryFigures:
    """CPU-milliseconds of each call of a conversation, (calls,)."""

    read_ms: NDArray[np.float64]  # the body, from JSON to a request
    prompt_ms: NDArray[np.float64]  # match, render and tokenise
    record_ms: NDArray[np.float64]
    tokens: int  # of the last prompt
    body_bytes: int  # of the last body


def measure(renderer: Renderer) -> HistoryFigures:
    """Hold a conversation as a harness does that writes arguments anew."""
    history, wire = History(renderer), WIRES["chat"]
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You are careful. " * 200},
        {"role": "user", "content": "Do it."},
    ]
    times = np.zeros((CALLS, 3))
    tokens = size = 0
    for number in range(CALLS):
        body = json.dumps({"model": "m", "messages": messages, "tools": TOOLS}).encode()
        marks = [time.process_time()]
        request = wire.parse(read_json(body), {})
        marks.append(time.process_time())
        prompt = history.prompt(request)
        marks.append(time.process_time())
        name = f"call_{number:020d}"
        spoken, arguments = f"I look at file {number}.", f'{{"path":   "src/file{number}.py"}}'
        said = f'{spoken}\n<tool_call>\n{{"name": "read", "arguments": {arguments}}}\n</tool_call>'
        output = [*renderer.ids(said).tolist(), renderer.tokenizer.eos_token_id]
        history.record(
            prompt, output, [TextDelta(spoken), ToolCallStart(0, name, "read"), ToolCallArguments(0, arguments)]
        )
        marks.append(time.process_time())
        times[number] = np.diff(marks) * 1000
        tokens, size = len(prompt.input_ids), len(body)
        function = {"name": "read", "arguments": json.dumps(json.loads(arguments))}
        calls = [{"id": name, "type": "function", "function": function}]
        messages.append({"role": "assistant", "content": spoken, "tool_calls": calls})
        result = (f"line {number} of the file and what stands there; " * 20)[:RESULT_CHARACTERS]
        messages.append({"role": "tool", "tool_call_id": name, "content": result})
    return HistoryFigures(*times.T, tokens, size)
