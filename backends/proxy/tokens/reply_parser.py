"""Reads a model's output while it streams: token ids in, pieces of a reply out."""

from __future__ import annotations

from collections.abc import Sequence

from gyre.trajectory.call import Finish

from ..conversation import Request
from ..reply import Delta, ReasoningDelta, TextDelta
from .constraint import call_format
from .detokenizer import Detokenizer
from .renderer import Renderer
from .stop_strings import StopStrings
from .template import full_name
from .tool_calls import ToolCallReader


class ReplyParser:
    """One reply. Tokens that end a turn and strings that end a reply are kept out of its text."""

    def __init__(self, renderer: Renderer, request: Request, stop: Sequence[str] = (), reply_id: str = "") -> None:
        """`stop`: strings that end the output besides those that the request names.

        `reply_id`, unique for ever, gives tool calls their ids: a reply that is parsed again has the same ones.
        """
        parsers, tokenizer = renderer.parsers, renderer.tokenizer
        form = call_format(request, parsers, tokenizer)
        named = {full_name(tool): tool for tool in request.tools}
        self._left_out = set(renderer.stop_ids)
        if form is None and not parsers.read_specials:
            self._left_out.update(renderer.special_ids)
        self._words = Detokenizer(tokenizer)
        self._stops = StopStrings((*request.stop, *stop))
        self._reasoning = parsers.reasoning_format(renderer.opening, tokenizer)
        self._calls = None if form is None else ToolCallReader(form, named, reply_id)
        self._shown = ""  # "reasoning" or "text": what came last
        self.reasoning_tokens = 0  # as well as they can be told, chunk by chunk
        self.finish = Finish.STOP

    @property
    def stop_sequence(self) -> str:
        """The string that ended the reply, "" where none did."""
        return self._stops.found

    def feed(self, token_ids: Sequence[int]) -> list[Delta]:
        """Return what the tokens add to the reply, if anything can be told yet."""
        text = self._words.feed([token for token in token_ids if token not in self._left_out])
        deltas = self._split(self._stops.feed(text))
        if self._reasoning is not None and self._shown != "text":
            self.reasoning_tokens += len(token_ids)
        return deltas

    def end(self, finish: Finish) -> list[Delta]:
        """Return the rest of the reply, which ended so; `self.finish` then says how it ends for the harness."""
        deltas = self._split(self._stops.feed(self._words.end()) + self._stops.end())
        if self._reasoning is not None:
            deltas += self._told(*self._reasoning.parse_stream_end())
        if self._calls is not None:
            deltas += self._calls.end()
        called = self._calls is not None and self._calls.count > 0
        self.finish = Finish.TOOL_CALLS if called and finish is Finish.STOP else finish
        return deltas

    def _split(self, text: str) -> list[Delta]:
        if not text:
            return []
        if self._reasoning is None:
            return self._told(None, text)
        return self._told(*self._reasoning.parse_stream_chunk(text))

    def _told(self, reasoning: str | None, text: str | None) -> list[Delta]:
        deltas: list[Delta] = []
        # The line ends between tags and text are the format's, not the reply's.
        if reasoning and (reasoning := reasoning if self._shown == "reasoning" else reasoning.lstrip("\n")):
            self._shown = "reasoning"
            deltas.append(ReasoningDelta(reasoning))
        if text and (text := text.lstrip("\n") if self._shown == "reasoning" else text):
            self._shown = "text"
            deltas += [TextDelta(text)] if self._calls is None else self._calls.feed(text)
        return deltas
