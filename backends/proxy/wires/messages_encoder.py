"""Anthropic messages: replies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from gyre.trajectory.call import Finish

from ..conversation import Request
from ..reply import Delta, End, Failure, ReasoningDelta, TextDelta, ToolCallArguments, ToolCallStart, Usage
from .arguments import object_of, object_text
from .blocks import BROKEN, Block, Blocks, gathered
from .sse import BLANK, EVENT_STREAM, JSON, dump, event

_ERRORS: Final = {  # of each kind of failure: the protocol's type
    "invalid_request": "invalid_request_error",
    "unauthorized": "authentication_error",
    "forbidden": "permission_error",
    "not_found": "not_found_error",
    "too_large": "request_too_large",
    "too_long": "invalid_request_error",
    "rate_limited": "rate_limit_error",
    "overloaded": "overloaded_error",
    "ended": "permission_error",
}
_REASONS: Final = {Finish.STOP: "end_turn", Finish.LENGTH: "max_tokens", Finish.TOOL_CALLS: "tool_use"}
# The field asks for a string that comes back unchanged; there is nothing here to sign.
_SIGNATURE: Final = "Z3lyZQ=="
_PING: Final = event({"type": "ping"})


def error_body(failure: Failure) -> dict[str, Any]:
    """Return a failure in the protocol's words; clients look for the sentence about a prompt that is too long."""
    message = failure.message
    if failure.kind == "too_long" and failure.max_prompt_tokens:
        message = f"prompt is too long: {failure.prompt_tokens} tokens > {failure.max_prompt_tokens} maximum"
    return {"type": "error", "error": {"type": _ERRORS.get(failure.kind, "api_error"), "message": message}}


class MessagesEncoder:
    """Writes one reply, as events or as one message.

    Text and thinking go out as they come. A call's input is held until the call is whole, as Anthropic's API does where
    a client has not asked for it raw: clients fail on input that is no JSON, and only then is known that it is some.
    Until then each of its pieces is a ping, so that the client's timers see what ours sees.
    """

    def __init__(self, request: Request, reply_id: str) -> None:
        self._request = request
        self._head = {"id": f"msg_{reply_id}", "type": "message", "role": "assistant", "model": request.model}
        self._blocks = Blocks()
        self._begun = False
        self.media_type = EVENT_STREAM if request.stream else JSON

    def begin(self, input_tokens: int) -> bytes:
        """Return the event that starts the message, with the prompt's tokens, and a ping."""
        self._begun = True
        usage = _usage(Usage(input_tokens, 0, 0))
        message: dict[str, Any] = {**self._head, "content": [], "stop_reason": None, "stop_sequence": None}
        return event({"type": "message_start", "message": message | {"usage": usage}}) + _PING

    def keep_alive(self) -> bytes:
        """Return a ping; before a plain body, a blank."""
        return _PING if self._request.stream else BLANK

    def feed(self, delta: Delta) -> bytes:
        """Return the events of one piece."""
        out = b""
        if self._blocks.opens(delta):
            out = self._stop()
        before = len(self._blocks.all)
        text = self._blocks.add(delta)
        if len(self._blocks.all) > before:
            out += self._event("content_block_start", content_block=_start(delta))
        if text and isinstance(delta, TextDelta):
            out += self._event("content_block_delta", delta={"type": "text_delta", "text": text})
        elif text and isinstance(delta, ReasoningDelta):
            out += self._event("content_block_delta", delta={"type": "thinking_delta", "thinking": text})
        elif text:
            out += _PING
        return out

    def end(self, end: End) -> bytes:
        """Return the events that close the message."""
        if end.finish not in _REASONS:
            return self.fail(BROKEN)
        delta = {"stop_reason": _reason(end, self._blocks.calls), "stop_sequence": end.stop_sequence or None}
        last = event({"type": "message_delta", "delta": delta, "usage": _usage(end.usage)})
        return self._stop() + last + event({"type": "message_stop"})

    def whole(self, deltas: Sequence[Delta], end: End) -> bytes:
        """Return the message."""
        if end.finish not in _REASONS:
            return self.fail(BROKEN)
        blocks = gathered(deltas)
        message = {
            **self._head,
            "content": [_content(block) for block in blocks.all],
            "stop_reason": _reason(end, blocks.calls),
            "stop_sequence": end.stop_sequence or None,
            "usage": _usage(end.usage),
        }
        return dump(message)

    def fail(self, failure: Failure) -> bytes:
        """Return an error; in a stream, as the event after which nothing comes."""
        body = error_body(failure)
        return event(body) if self._begun else dump(body)

    def _event(self, type_: str, **more: Any) -> bytes:
        return event({"type": type_, "index": len(self._blocks.all) - 1, **more})

    def _stop(self) -> bytes:
        """Return the events that close the block that is open, if one is."""
        if not self._blocks.all:
            return b""
        block = self._blocks.all[-1]
        out = b""
        match block.opening:
            case ReasoningDelta():
                out = self._event("content_block_delta", delta={"type": "signature_delta", "signature": _SIGNATURE})
            case ToolCallStart():
                delta = {"type": "input_json_delta", "partial_json": object_text(block.text)}
                out = self._event("content_block_delta", delta=delta)
        return out + self._event("content_block_stop")


def _reason(end: End, calls: bool) -> str:
    if end.finish is Finish.STOP:
        return "tool_use" if calls else "stop_sequence" if end.stop_sequence else "end_turn"
    return _REASONS[end.finish]


def _start(opening: Delta) -> dict[str, Any]:
    match opening:
        case TextDelta():
            return {"type": "text", "text": ""}
        case ReasoningDelta():
            return {"type": "thinking", "thinking": "", "signature": ""}
        case ToolCallStart(_, id_, name):
            return {"type": "tool_use", "id": id_, "name": name, "input": {}}
        case ToolCallArguments():
            raise AssertionError("arguments open no block")


def _content(block: Block) -> dict[str, Any]:
    content = _start(block.opening)
    match block.opening:
        case TextDelta():
            content["text"] = block.text
        case ReasoningDelta():
            content |= {"thinking": block.text, "signature": _SIGNATURE}
        case ToolCallStart():
            content["input"] = object_of(block.text)
    return content


def _usage(usage: Usage) -> dict[str, int]:
    """Return the tokens, of the input those apart that were read from a cache.

    One at least is always computed anew; clients read a 0 as "not said" and would count the cached ones twice.
    """
    cached = max(0, min(usage.cached_tokens, usage.input_tokens - 1))
    return {
        "input_tokens": usage.input_tokens - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": usage.output_tokens,
    }
