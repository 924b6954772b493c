"""OpenAI chat completions: replies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from gyre.trajectory.call import Finish

from ..conversation import Request
from ..reply import Delta, End, Failure, ReasoningDelta, TextDelta, ToolCallArguments, ToolCallStart, Usage
from . import openai_errors
from .blocks import BROKEN, Blocks, gathered
from .sse import BLANK, DONE, EVENT_STREAM, JSON, data, dump

_REASONS: Final = {Finish.STOP: "stop", Finish.LENGTH: "length", Finish.TOOL_CALLS: "tool_calls"}


class ChatEncoder:
    """Writes one reply, as chunks or as one completion."""

    def __init__(self, request: Request, reply_id: str, created_s: int) -> None:
        self._request = request
        self._head = {"id": f"chatcmpl-{reply_id}", "created": created_s, "model": request.model}
        self._begun = False
        self._calls = False
        self.media_type = EVENT_STREAM if request.stream else JSON

    def begin(self, input_tokens: int) -> bytes:
        """Return the chunk that names the role."""
        self._begun = True
        return self._chunk({"role": "assistant", "content": ""})

    def keep_alive(self) -> bytes:
        """Return a chunk with an empty delta; before a plain body, a blank."""
        return self._chunk({}) if self._request.stream else BLANK

    def feed(self, delta: Delta) -> bytes:
        """Return the chunk of one piece."""
        match delta:
            case TextDelta(text):
                return self._chunk({"content": text}) if text else b""
            case ReasoningDelta(text):
                return self._chunk({"reasoning_content": text}) if text else b""
            case ToolCallStart(index):
                self._calls = True
                return self._chunk({"tool_calls": [{"index": index, **_call(delta, "")}]})
            case ToolCallArguments(index, fragment):
                call = {"index": index, "function": {"arguments": fragment}}
                return self._chunk({"tool_calls": [call]}) if fragment else b""

    def end(self, end: End) -> bytes:
        """Return the chunk with the reason, the one with the usage where it was asked for, and the stream's end."""
        if end.finish not in _REASONS:
            return self.fail(BROKEN)
        last = self._chunk({}, _reason(end, self._calls), self._token_ids(end))
        if self._request.include_usage:
            last += data({**self._head, "object": "chat.completion.chunk", "choices": [], "usage": _usage(end.usage)})
        return last + DONE

    def whole(self, deltas: Sequence[Delta], end: End) -> bytes:
        """Return the completion."""
        if end.finish not in _REASONS:
            return self.fail(BROKEN)
        blocks = gathered(deltas)
        choice = {
            "index": 0,
            "message": _message(blocks),
            "finish_reason": _reason(end, blocks.calls),
            "logprobs": None,
        }
        completion = {**self._head, "object": "chat.completion", "choices": [choice], "usage": _usage(end.usage)}
        if self._request.want_token_ids:
            choice["token_ids"] = end.output_ids
            completion["prompt_token_ids"] = end.input_ids
        return dump(completion)

    def fail(self, failure: Failure) -> bytes:
        """Return an error; in a stream, without the mark of its end."""
        body = openai_errors.body(failure)
        return data(body) if self._begun else dump(body)

    def _chunk(self, delta: dict[str, Any], reason: str | None = None, more: dict[str, Any] | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}
        chunk = {**self._head, "object": "chat.completion.chunk", "choices": [choice]}
        if more:
            choice["token_ids"] = more["token_ids"]
            chunk["prompt_token_ids"] = more["prompt_token_ids"]
        return data(chunk)

    def _token_ids(self, end: End) -> dict[str, Any] | None:
        if not self._request.want_token_ids:
            return None
        return {"token_ids": end.output_ids, "prompt_token_ids": end.input_ids}


def _reason(end: End, calls: bool) -> str:
    return "tool_calls" if calls and end.finish is Finish.STOP else _REASONS[end.finish]


def _call(start: ToolCallStart, arguments: str) -> dict[str, Any]:
    return {"id": start.id, "type": "function", "function": {"name": start.name, "arguments": arguments}}


def _message(blocks: Blocks) -> dict[str, Any]:
    text = "".join(block.text for block in blocks.all if isinstance(block.opening, TextDelta))
    reasoning = "".join(block.text for block in blocks.all if isinstance(block.opening, ReasoningDelta))
    calls = [_call(block.opening, block.text) for block in blocks.all if isinstance(block.opening, ToolCallStart)]
    message: dict[str, Any] = {"role": "assistant", "content": text or (None if calls else "")}
    if reasoning:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = calls
    return message


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }
