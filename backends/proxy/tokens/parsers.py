"""The parsers of a model's output, by SGLang's names for them. SGLang is imported when one is first needed.

Importing takes seconds: `Parsers.load` does it at a time of one's choosing. Without SGLang the two formats of `hermes`
stand in for its parsers of the same names; that of `harmony` does so always.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, Protocol

from gyre.errors import InputError

from ..conversation import Tool
from .harmony import HARMONY, HarmonyCalls, HarmonyChannels
from .hermes import HermesCalls, ThinkTags
from .template import full_name

_LOG = logging.getLogger(__name__)
_BUILT_IN_CALLS: Final = ("hermes", "qwen", "qwen25", HARMONY)
_BUILT_IN_REASONING: Final = ("qwen3", "qwen3-thinking", "deepseek-r1", HARMONY)
_LISTS_KEPT: Final = 16
_MARKED_BY_SPECIALS: Final = ("apertus2509", "gemma4", "gpt-oss", "inkling", "kimi_k3", "mistral", "muse")


class CallFormat(Protocol):
    """How tool calls stand in text."""

    start: str  # how they begin; "" where that cannot be told from other text before its end

    def begins(self, text: str) -> bool:
        """Whether `text`, the start of a reply, begins a call without `start`."""
        ...

    def calls(self, text: str) -> list[tuple[str, str]]:
        """Return name and arguments (JSON) of each call in `text`; what is malformed is left out."""
        ...

    def before(self, text: str) -> str:
        """Return the text before the first of the calls in `text`."""
        ...


class ReasoningFormat(Protocol):
    """How reasoning stands in text, piece by piece."""

    def parse_stream_chunk(self, chunk_text: str) -> tuple[str | None, str | None]:
        """Return what of the reply is known now to be reasoning and to be text."""
        ...

    def parse_stream_end(self) -> tuple[str | None, str | None]:
        """Return what was held back."""
        ...


@dataclass(frozen=True, slots=True)
class Parsers:
    """Which parsers a model needs: SGLang's `--tool-call-parser` and `--reasoning-parser`; "": none."""

    tool_calls: str = ""
    reasoning: str = ""
    # Lists of tools in SGLang's form, the newest last: an execution has few, and making one takes 50 us a tool.
    _made: list[tuple[Sequence[Tool], list[Any]]] = field(default_factory=list, init=False, repr=False, compare=False)

    def load(self) -> None:
        """Import what is needed and check the names.

        Raises:
            InputError: there is no parser of that name.
        """
        if self.tool_calls == HARMONY != self.reasoning:
            raise InputError(f"tool-call parser {HARMONY!r} goes with a reasoning parser of the same name; name both")
        if self.tool_calls and _sglang_tools() is None and self.tool_calls not in _BUILT_IN_CALLS:
            raise InputError(f"tool-call parser {self.tool_calls!r} is SGLang's: pip install sglang")
        if self.reasoning and _sglang_reasoning() is None and self.reasoning not in _BUILT_IN_REASONING:
            raise InputError(f"reasoning parser {self.reasoning!r} is SGLang's: pip install sglang")
        for kind, name, known in (
            ("tool-call", self.tool_calls, _sglang_tools().ToolCallParserEnum if _sglang_tools() else ()),
            ("reasoning", self.reasoning, _sglang_reasoning().DetectorMap if _sglang_reasoning() else ()),
        ):
            if name and known and name not in known:
                raise InputError(f"no {kind} parser {name!r}; SGLang has {', '.join(sorted(known))}")

    @property
    def read_specials(self) -> bool:
        """Whether a parser looks for special tokens in the text, even of a reply without calls."""
        return self.reasoning in _MARKED_BY_SPECIALS

    def call_format(self, tools: tuple[Tool, ...], tokenizer: Any) -> CallFormat | None:
        """Return the format of tool calls; None where there is no parser."""
        if not self.tool_calls:
            return None
        if self.tool_calls == HARMONY:
            return HarmonyCalls(frozenset(map(full_name, tools)))
        if _sglang_tools() is None:
            return HermesCalls(frozenset(map(full_name, tools)))
        return _SGLangCalls(self.function_call_parser(tools, tokenizer))

    def function_call_parser(self, tools: Sequence[Tool], tokenizer: Any = None) -> Any:
        """Return a new FunctionCallParser of SGLang's, None where there is no SGLang or no parser is named."""
        made = _sglang_tools()
        return None if made is None or not self.tool_calls else made(self._as_sglang(tools), self.tool_calls, tokenizer)

    def _as_sglang(self, tools: Sequence[Tool]) -> list[Any]:
        for known, made in self._made:
            if known == tools:
                return made
        made = _as_sglang(tools)
        self._made.append((tools, made))
        del self._made[:-_LISTS_KEPT]
        return made

    def reasoning_format(self, opening: str, tokenizer: Any) -> ReasoningFormat | None:
        """Return the format of reasoning; `opening` is what the template wrote of the turn, such as `<think>`."""
        if self.reasoning == HARMONY:
            return HarmonyChannels()
        opened = None if "think" not in opening else "</think" not in opening
        if not self.reasoning or opened is False:
            return None
        made = _sglang_reasoning()
        if made is None:
            return ThinkTags(opened or self.reasoning != "qwen3")
        format_: ReasoningFormat = made(
            self.reasoning, force_reasoning=opened, tokenizer=tokenizer, tool_call_parser_active=bool(self.tool_calls)
        )
        return format_


class _SGLangCalls:
    """Calls by a detector of SGLang's, in one go.

    Its streaming interface parses all arguments anew at each chunk, which takes time quadratic in their length; it
    drops malformed calls; and it does not say where they stood.
    """

    def __init__(self, parser: Any) -> None:
        self._parser = parser
        detector = parser.detector
        begin = str(getattr(detector, "bot_token", "") or getattr(detector, "tool_call_start_token", "") or "").split()
        self.start = begin[0] if begin else ""

    def begins(self, text: str) -> bool:
        return bool(self._parser.has_tool_call(text))

    def calls(self, text: str) -> list[tuple[str, str]]:
        return [(call.name, call.parameters) for call in self._parsed(text)[1] if call.name]

    def before(self, text: str) -> str:
        return str(self._parsed(text)[0] or "")

    def _parsed(self, text: str) -> tuple[str, list[Any]]:
        try:
            parsed: tuple[str, list[Any]] = self._parser.parse_non_stream(text)
        except Exception:  # whatever a parser makes of a model's output must not end the reply
            _LOG.info("the tool-call parser failed on a reply; it is passed on as text", exc_info=True)
            return text, []
        return parsed


@cache
def _sglang_tools() -> Any:
    try:
        from sglang.srt.function_call.function_call_parser import FunctionCallParser
    except ImportError:
        return None
    return FunctionCallParser


@cache
def _sglang_reasoning() -> Any:
    try:
        from sglang.srt.parser.reasoning_parser import ReasoningParser
    except ImportError:
        return None
    return ReasoningParser


def _as_sglang(tools: Sequence[Tool]) -> list[Any]:
    from sglang.srt.entrypoints.openai.protocol import Function
    from sglang.srt.entrypoints.openai.protocol import Tool as SGLangTool

    return [
        SGLangTool(
            function=Function(name=full_name(tool), description=tool.description, parameters=dict(tool.parameters))
        )
        for tool in tools
    ]
