"""The calls of one execution: recorded tokens put back where a request repeats their conversation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from gyre.arrays import Int32Array

from ..conversation import Message, Request, Speaker, Tool
from ..reply import Delta
from .context import Context
from .controls import unmarked
from .node import Node
from .renderer import Renderer
from .seam import Turn
from .turns import as_message, same_turn

_SHOWN_ANEW: Final = "the template now shows earlier turns in another way"
_UNKNOWN: Final = "no call of this conversation is known"
_NOTHING: Final = Message(Speaker.SYSTEM)  # at a root


@dataclass(frozen=True, slots=True, eq=False)
class Prompt:
    """What to send to an engine: n input token ids."""

    input_ids: Int32Array
    reused_tokens: int  # leading ones that are a recorded call's input and output
    branch: str  # "" where the request goes on from the newest call in its conversation; else why it does not
    end: Node  # the rest is for `History.record`
    context: Context
    thinks: bool


class History:
    """All conversations of one execution: main thread, sub-agents and compactions tell themselves apart.

    A request is compared message by message with the conversations so far (equal tools, then equal messages; of the
    model's own turns also those that a harness wrote anew, see `same_turn`). From the deepest call on that path the
    recorded tokens are taken, and only what follows is tokenised. Where the template would no longer show what stands
    in that call's context, the request is a branch from an earlier call, or from nothing.
    """

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer
        self._roots: list[tuple[tuple[Tool, ...], Node]] = []
        self._by_call_id: dict[str, Message] = {}
        self._recorded = 0

    def prompt(self, request: Request) -> Prompt:
        """Return the tokens of a request.

        Raises:
            BadRequestError: the chat template refuses the messages.
        """
        path = self._path(request)
        messages = [node.message for node in path]
        calls = [index for index, node in enumerate(path) if node.call is not None]
        # A template drops reasoning or nothing: if the newest call stands no more, one before any reasoning may.
        for index in (*calls[-1:], *[index for index in calls[:-1] if not path[index].thinks][-1:]):
            branch = "" if index == calls[-1] else _SHOWN_ANEW
            prompt = self._continued(path, messages, index, request.tools, branch)
            if prompt is not None:
                return prompt
        text = self._renderer.template.text(messages, request.tools, generate=True)
        ids = self._renderer.ids(text)
        branch = _SHOWN_ANEW if calls else _UNKNOWN if self._recorded else ""
        thinks = _thinks(messages, unmarked(text))
        return Prompt(ids, 0, branch, path[-1], Context(None, ids), thinks)

    def _continued(
        self, path: Sequence[Node], messages: Sequence[Message], index: int, tools: tuple[Tool, ...], branch: str
    ) -> Prompt | None:
        """Return the prompt that goes on from the call at `path[index]`, or None where that stands no more."""
        call, thinks = path[index].call, path[index].thinks
        assert call is not None
        last_id = int(call.tail[-1]) if len(call.tail) else None
        seam = self._renderer.seams.continuation(
            Turn(messages[:index], messages[index], tools, thinks, last_id), messages[index + 1 :]
        )
        if seam is None:
            return None
        if seam.cut:
            call = Context(call.parent, call.tail[: -seam.cut])
        tail = seam.ids
        context = Context(call, tail)
        if not thinks and any(message.reasoning for message in messages[index + 1 :]):
            thinks = _thinks(messages[index + 1 :], self._renderer.tokenizer.decode(tail))
        return Prompt(context.ids(), call.length, branch, path[-1], context, thinks)

    def record(self, prompt: Prompt, output_ids: npt.ArrayLike, shown: Sequence[Delta]) -> Message:
        """Keep a finished call: what was sampled after `prompt`, and the reply as the harness saw it; return that."""
        message = as_message(shown)
        call = Context(prompt.context, np.array(output_ids, np.int32))
        prompt.end.sampled(message, call, thinks=prompt.thinks or bool(message.reasoning))
        self._recorded += 1
        self._by_call_id.update((call.id, message) for call in message.tool_calls)
        return message

    def _path(self, request: Request) -> list[Node]:
        node = self._root(request.tools)
        path: list[Node] = []
        for message in request.messages:
            node = self._child(node, message)
            path.append(node)
        return path

    def _root(self, tools: tuple[Tool, ...]) -> Node:
        for known, root in self._roots:
            if known == tools:
                return root
        root = Node(_NOTHING)
        self._roots.append((tools, root))
        return root

    def _child(self, node: Node, message: Message) -> Node:
        return node.child(message) or node.grow(message, self._restored(message))

    def _restored(self, message: Message) -> Message:
        """Return a turn that was sampled elsewhere in the execution as it was then."""
        if message.tool_calls:
            known = self._by_call_id.get(message.tool_calls[0].id)
            if known is not None and same_turn(known, message):
                return known
        return message


def _thinks(messages: Sequence[Message], text: str) -> bool:
    """Return whether the template, which wrote `text`, shows reasoning of one of the messages."""
    return any(message.reasoning.strip() in text for message in messages if message.reasoning.strip())
