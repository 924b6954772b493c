"""OpenAI responses: replies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from gyre.trajectory.call import Finish

from ..conversation import Request
from ..reply import Delta, End, Failure, ReasoningDelta, TextDelta, ToolCallStart, Usage
from . import openai_errors
from .blocks import BROKEN, Block, Blocks, gathered
from .sse import BLANK, EVENT_STREAM, JSON, dump, event

_WHOLE: Final = (Finish.STOP, Finish.TOOL_CALLS, Finish.LENGTH)


class ResponsesEncoder:
    """Writes one reply, as events or as one response.

    Each run of reasoning, run of text and call is an item of the output. Reasoning goes out as the item's summary:
    clients show that and send it back, which they do not do with an item's content; some only together with an
    `encrypted_content`, which is the item's id here. The request's tools are not echoed.
    """

    def __init__(self, request: Request, reply_id: str, created_s: int) -> None:
        self._request = request
        self._id = reply_id
        self._created_s = created_s
        self._sequence = 0
        self._blocks = Blocks()
        self._items: list[dict[str, Any]] = []
        self._begun = False
        self.media_type = EVENT_STREAM if request.stream else JSON

    def begin(self, input_tokens: int) -> bytes:
        """Return the events that tell of a response in the making."""
        self._begun = True
        return self._event("response.created", response=self._response("in_progress")) + self.keep_alive()

    def keep_alive(self) -> bytes:
        """Return the event that says it goes on; before a plain body, a blank."""
        if not self._request.stream:
            return BLANK
        return self._event("response.in_progress", response=self._response("in_progress"))

    def feed(self, delta: Delta) -> bytes:
        """Return the events of one piece."""
        out = b""
        if self._blocks.opens(delta):
            out = self._close("completed")
        before = len(self._blocks.all)
        text = self._blocks.add(delta)
        if len(self._blocks.all) > before:
            out += self._open()
        if text:
            out += self._piece(text)
        return out

    def end(self, end: End) -> bytes:
        """Return the events that close the response."""
        if end.finish not in _WHOLE:
            return self.fail(BROKEN)
        status = _status(end)
        out = self._close(status)
        response = self._response(status, self._items, end.usage)
        return out + self._event(f"response.{status}", response=response)

    def whole(self, deltas: Sequence[Delta], end: End) -> bytes:
        """Return the response."""
        if end.finish not in _WHOLE:
            return self.fail(BROKEN)
        blocks = gathered(deltas).all
        last = len(blocks) - 1
        items = [self._item(i, b, _status(end) if i == last else "completed") for i, b in enumerate(blocks)]
        return dump(self._response(_status(end), items, end.usage))

    def fail(self, failure: Failure) -> bytes:
        """Return an error; in a stream, as the two events that tell of it: clients look for one or the other."""
        body = openai_errors.body(failure)
        if not self._begun:
            return dump(body)
        code, message = openai_errors.code(failure), openai_errors.message(failure)
        response = self._response("failed", self._items) | {"error": {"code": code, "message": message}}
        error = self._event("error", code=code, message=message, param=None, **body)
        return error + self._event("response.failed", response=response)

    def _event(self, type_: str, **more: Any) -> bytes:
        numbered = {"type": type_, "sequence_number": self._sequence, **more}
        self._sequence += 1
        return event(numbered)

    def _response(self, status: str, output: Sequence[Any] = (), usage: Usage | None = None) -> dict[str, Any]:
        choice = self._request.tool_choice
        return {
            "id": f"resp_{self._id}",
            "object": "response",
            "created_at": self._created_s,
            "status": status,
            "model": self._request.model,
            "output": output,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "instructions": None,
            "metadata": {},
            "parallel_tool_calls": self._request.parallel_tool_calls,
            "tool_choice": {"type": "function", "name": choice.name} if choice.name else choice.mode,
            "tools": [],
            "usage": None if usage is None else _usage(usage),
        }

    def _at(self) -> dict[str, Any]:
        """Return what says of an event which item it is about."""
        index = len(self._blocks.all) - 1
        return {"item_id": _item_id(self._id, index, self._blocks.all[index]), "output_index": index}

    def _open(self) -> bytes:
        block = self._blocks.all[-1]
        index = len(self._blocks.all) - 1
        item = self._item(index, Block(block.opening), "in_progress")
        part = item.pop("content", None) or item.pop("summary", None)
        match block.opening:
            case TextDelta():
                out = self._event("response.output_item.added", output_index=index, item=item | {"content": []})
                return out + self._event("response.content_part.added", **self._at(), content_index=0, part=part[0])
            case ReasoningDelta():
                out = self._event("response.output_item.added", output_index=index, item=item | {"summary": []})
                name = "response.reasoning_summary_part.added"
                return out + self._event(name, **self._at(), summary_index=0, part=part[0])
            case _:
                return self._event("response.output_item.added", output_index=index, item=item)

    def _piece(self, text: str) -> bytes:
        match self._blocks.all[-1].opening:
            case TextDelta():
                name, more = "response.output_text.delta", {"content_index": 0, "logprobs": []}
            case ReasoningDelta():
                name, more = "response.reasoning_summary_text.delta", {"summary_index": 0}
            case _:
                name, more = "response.function_call_arguments.delta", {}
        return self._event(name, **self._at(), delta=text, **more)

    def _close(self, status: str) -> bytes:
        """Return the events that close the item that is open, if one is."""
        if not self._blocks.all:
            return b""
        block = self._blocks.all[-1]
        index = len(self._blocks.all) - 1
        item = self._item(index, block, status)
        self._items.append(item)
        return self._done(block, item) + self._event("response.output_item.done", output_index=index, item=item)

    def _done(self, block: Block, item: dict[str, Any]) -> bytes:
        match block.opening:
            case TextDelta():
                part, at = item["content"][0], {**self._at(), "content_index": 0}
                out = self._event("response.output_text.done", **at, text=part["text"], logprobs=[])
                return out + self._event("response.content_part.done", **at, part=part)
            case ReasoningDelta():
                part, at = item["summary"][0], {**self._at(), "summary_index": 0}
                out = self._event("response.reasoning_summary_text.done", **at, text=part["text"])
                return out + self._event("response.reasoning_summary_part.done", **at, part=part)
            case _:
                whole = {"name": item["name"], "arguments": item["arguments"]}
                return self._event("response.function_call_arguments.done", **self._at(), **whole)

    def _item(self, index: int, block: Block, status: str) -> dict[str, Any]:
        head = {"id": _item_id(self._id, index, block), "status": status}
        match block.opening:
            case TextDelta():
                part = {"type": "output_text", "text": block.text, "annotations": [], "logprobs": []}
                return {**head, "type": "message", "role": "assistant", "content": [part]}
            case ReasoningDelta():
                summary = [{"type": "summary_text", "text": block.text}]
                return {**head, "type": "reasoning", "summary": summary, "encrypted_content": head["id"]}
            case ToolCallStart(_, id_, name, namespace):
                call = {**head, "type": "function_call", "call_id": id_, "name": name, "arguments": block.text}
                return call | ({"namespace": namespace} if namespace else {})
            case _:
                raise AssertionError("arguments open no block")


def _status(end: End) -> str:
    return "incomplete" if end.finish is Finish.LENGTH else "completed"


def _item_id(reply_id: str, index: int, block: Block) -> str:
    prefix = {TextDelta: "msg", ReasoningDelta: "rs"}.get(type(block.opening), "fc")
    return f"{prefix}_{reply_id}_{index}"


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }
