"""What a chat template writes after a turn of the model's: the text between sampled tokens and the next turn.

The sampled tokens are never written anew. In the turn's place the template gets a stand-in with marks for reasoning,
text and arguments; what follows the last mark, from the token on that ends the turn, is the continuation. The same
writing shows whether the turn still stands: all that the template wrote before it must be there as it was, and every
part of the turn that it showed when the turn was the newest. A template that drops earlier reasoning once a new user
message comes fails this, and the conversation has to be written anew.

Writing a long conversation costs far more than its newest messages (0.1 to 0.2 ms a message), so a window stands for
it: the first messages up to the first of the user, and the turn before; one tool stands for all. Whether a template
can be shown so little is found out when it is loaded, and checked again on the first short conversations; one that
cannot (that numbers its turns, say) is given all messages each time.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from gyre.arrays import Int32Array

from ..conversation import Message, Speaker, Tool, ToolCall
from .template import TemplateRefusalError

if TYPE_CHECKING:
    from .renderer import Renderer

_LOG = logging.getLogger(__name__)
_MARK: Final = "gyre" + secrets.token_hex(8)  # in no conversation
_REASONING, _TEXT, _ARGUMENTS, _EARLIER = (_MARK + part for part in ("reasoning", "text", "arguments", "earlier"))
_TOOL: Final = Tool(_MARK + "tool", "looks", {"type": "object", "properties": {"at": {"type": "string"}}})
_CHECKED_MESSAGES: Final = 24  # conversations up to here are written whole as well, to check the window
_CHECKS: Final = 64


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn of the model's and what stood before it."""

    earlier: Sequence[Message]
    message: Message
    tools: tuple[Tool, ...]
    thinks: bool  # whether reasoning of earlier turns stands in its context
    last_id: int | None  # that was sampled; None: nothing was


@dataclass(frozen=True, slots=True, eq=False)
class Seam:
    """Tokens (n int32) that follow a turn's. `cut` of its last ones go: harmony ends the newest turn in its own way."""

    ids: Int32Array
    cut: int = 0


class Seams:
    """Continuations of turns, by one renderer's template."""

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer
        self._template = renderer.template
        self._stops = {_spelled(renderer, token): token for token in renderer.stop_ids}
        self._closes: dict[tuple[bool, ...], str] = {}
        self._checks = _CHECKS
        self._steady = False  # whether results of tools never change what was written before
        self.windowed = self._window_holds()
        self._steady = self._results_hold()

    def continuation(self, turn: Turn, tail: Sequence[Message]) -> Seam | None:
        """Return what follows the turn's tokens, up to where the model goes on; None: the turn stands no more.

        Raises:
            BadRequestError: the template refuses the messages.
        """
        written = self._after(turn, tail)
        if written is None:
            return None
        return self._cut(written, self._close(turn), turn.last_id)

    def _after(self, turn: Turn, tail: Sequence[Message]) -> str | None:
        """Return what the template writes after the stand-in's last mark, or None where the turn stands no more."""
        small = _small(turn)
        if not self.windowed or len(small.earlier) == len(turn.earlier):
            return self._written(turn, tail)
        if self._checks and len(turn.earlier) <= _CHECKED_MESSAGES:
            self._checks -= 1
            whole = self._written(turn, tail)
            if whole != self._tried(small, tail):
                self.windowed = False
                _LOG.warning("the chat template looks far back: conversations are written whole, which takes longer")
            return whole
        try:
            results = self._steady and all(message.speaker is Speaker.TOOL for message in tail)
            written = self._written(small, tail, check=not results)
        except TemplateRefusalError:
            return self._written(turn, tail)
        return self._written(turn, tail) if written is not None and _TOOL.name in written else written

    def _tried(self, turn: Turn, tail: Sequence[Message]) -> str | None:
        try:
            return self._written(turn, tail)
        except TemplateRefusalError:
            return None

    def _written(self, turn: Turn, tail: Sequence[Message], *, check: bool = True) -> str | None:
        before = turn.earlier
        stand_in, marks = _marked(turn.message)
        whole = self._template.text([*before, stand_in, *tail], turn.tools, generate=True)
        if check:
            if not whole.startswith(self._template.text(before, turn.tools, generate=False)):
                return None
            newest = self._template.text([*before, stand_in], turn.tools, generate=False)
            if any(mark in newest and mark not in whole for mark in marks):
                return None
        return whole[_end(whole, marks) :]

    def _close(self, turn: Turn) -> str:
        """Return what the template writes after the last mark of a turn that is the newest."""
        shape = (bool(turn.message.text), bool(turn.message.tool_calls), bool(turn.tools))
        if shape not in self._closes:
            try:
                self._closes[shape] = self._newest_close(_small(turn))
            except TemplateRefusalError:
                return self._newest_close(turn)
        return self._closes[shape]

    def _newest_close(self, turn: Turn) -> str:
        stand_in, marks = _marked(turn.message)
        newest = self._template.text([*turn.earlier, stand_in], turn.tools, generate=False)
        return newest[_end(newest, marks) :]

    def _cut(self, written: str, close: str, last_id: int | None) -> Seam:
        """Cut off what was sampled: the rest of a call's syntax, and the turn's last token where it was sampled."""
        ending = self._first_stop(close)
        if ending is not None and written.startswith(close[: ending[0]] + ending[1]):
            at, stop = ending
            if last_id not in self._renderer.stop_ids:
                return Seam(self._renderer.ids(written[at:]))
            return Seam(self._anchored(stop, written[at + len(stop) :]))
        other = "" if ending is None else self._renderer.special_at(written, ending[0])
        if ending is not None and other and written.startswith(close[: ending[0]]):  # harmony ends the newest otherwise
            return Seam(self._renderer.ids(written[ending[0] :]), cut=int(last_id in self._renderer.stop_ids))
        written = written[len(_common(close.rstrip(), written)) :]
        for stop, token in self._stops.items():  # of templates that end a turn with the next one's first token
            if token == last_id and written.startswith(stop):
                return Seam(self._anchored(stop, written[len(stop) :]))
        return Seam(self._renderer.ids(written))

    def _first_stop(self, text: str) -> tuple[int, str] | None:
        found = [(at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        return min(found, default=None)

    def _anchored(self, stop: str, text: str) -> Int32Array:
        """Tokenise text that follows a token: some tokenizers write the start of a text in another way."""
        ids = self._renderer.ids(stop + text)
        return ids[1:] if len(ids) and ids[0] == self._stops[stop] else self._renderer.ids(text)

    def _window_holds(self) -> bool:
        """Return whether a window gives what the whole gives, for short conversations of several shapes."""
        for conversation, tails in _probes():
            for at in range(1, len(conversation)):
                if conversation[at].speaker is not Speaker.ASSISTANT:
                    continue
                turn = _probe_turn(conversation, at)
                for tail in tails:
                    try:
                        whole = self._written(turn, tail)
                    except TemplateRefusalError:
                        continue
                    if whole != self._tried(_small(turn), tail):
                        _LOG.warning("the chat template looks far back: conversations are written whole")
                        return False
        return True

    def _results_hold(self) -> bool:
        """Return whether, in short conversations, a turn stands whatever results of tools follow it."""
        conversation = _probes()[0][0]
        for at in range(2, len(conversation), 2):
            turn = _probe_turn(conversation, at)
            for results in (1, 2):
                try:
                    if self._written(turn, conversation[at + 1 : at + 2] * results) is None:
                        return False
                except TemplateRefusalError:
                    continue
        return True


def _small(turn: Turn) -> Turn:
    """Return the turn after the few messages that stand for all before it, and with one tool for all tools."""
    earlier = turn.earlier
    speakers = [message.speaker for message in earlier[:8]]
    head = speakers.index(Speaker.USER) + 1 if Speaker.USER in speakers else 1
    for at in range(len(earlier) - 1, head, -1):
        if earlier[at].speaker is Speaker.ASSISTANT:
            before = earlier[at]
            if turn.thinks and not before.reasoning:
                before = replace(before, reasoning=_EARLIER)
            window = [*earlier[:head], before, *earlier[at + 1 :]]
            return replace(turn, earlier=window, tools=(_TOOL,) if turn.tools else ())
    return turn


def _marked(message: Message) -> tuple[Message, list[str]]:
    """Return a turn of the same shape whose parts are marks, and those marks."""
    calls = tuple(ToolCall(c.id, c.name, f'{{"at": "{_ARGUMENTS}"}}', c.namespace) for c in message.tool_calls)
    text = _TEXT if message.text.strip() or not calls else ""
    reasoning = _REASONING if message.reasoning.strip() else ""
    marks = [*[_REASONING][: len(reasoning)], *[_TEXT][: len(text)], *[_ARGUMENTS][: len(calls)]]
    return replace(message, text=text, reasoning=reasoning, tool_calls=calls), marks


def _end(text: str, marks: Sequence[str]) -> int:
    """Return where the last of the marks ends, 0 where there is none."""
    return max((at + len(mark) for mark in marks if (at := text.rfind(mark)) >= 0), default=0)


def _common(one: str, other: str) -> str:
    length = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return one[:length]


def _spelled(renderer: Renderer, token: int) -> str:
    spelled: str = renderer.tokenizer.decode([token], skip_special_tokens=False, clean_up_tokenization_spaces=False)
    return spelled


def _probe_turn(conversation: Sequence[Message], at: int) -> Turn:
    earlier = conversation[:at]
    return Turn(earlier, conversation[at], (_TOOL,), any(message.reasoning for message in earlier), None)


def _probes() -> list[tuple[list[Message], list[list[Message]]]]:
    """Return conversations, each with the messages that may follow each of its turns."""
    user, other = Message(Speaker.USER, "question"), Message(Speaker.USER, "another")
    working, chatting = [Message(Speaker.SYSTEM, "rules"), user], [user]
    for index in range(6):
        call = ToolCall(f"call_{index:024d}", "look", '{"at": "x"}')
        thought = "thought" if index % 3 != 1 else ""
        working.append(Message(Speaker.ASSISTANT, "text" * (index % 2), thought, (call,)))
        working.append(Message(Speaker.TOOL, "seen", tool_call_id=call.id))
        chatting += [Message(Speaker.ASSISTANT, "answer", thought), other]
    seen = Message(Speaker.TOOL, "seen", tool_call_id="call_" + "0" * 24)
    return [(working, [[seen], [seen, other], [other]]), (chatting, [[other]])]
