"""The harmony format of gpt-oss: a turn is a row of messages, each with a channel and, where it is a call, a recipient.

`<|channel|>analysis<|message|>…<|end|>` is reasoning; `final`, and `commentary` without a recipient, are text; what is
addressed to `functions.NAME`, in the role's part of the header or in the channel's, is a call. SGLang's detector finds
a call only after `<|start|>assistant<|channel|>commentary`, and so misses one that begins a reply or is addressed in
the role; hence these two.
"""

from __future__ import annotations

import json
import re
from typing import Final

from .hermes import partial

HARMONY: Final = "gpt-oss"  # by SGLang's name for both of its parsers
_TOKENS: Final = tuple(f"<|{name}|>" for name in ("start", "channel", "message", "constrain", "end", "call", "return"))
_TOKEN: Final = re.compile("|".join(map(re.escape, _TOKENS)))
_ENDS: Final = frozenset({"<|end|>", "<|call|>", "<|return|>"})
_CHANNEL: Final = re.compile(r"<\|channel\|>\s*(\w+)")
_RECIPIENT: Final = re.compile(r"\bto=([^\s<]+)")
_LONGEST_HEADER: Final = 300  # characters; what has no end by then is none
_OPENING: Final = "<|channel|>commentary to="  # of calls, as they are handed on
_CALL: Final = re.compile(re.escape(_OPENING) + r"(?:functions\.)?([^<\s]+)<\|message\|>(.*?)<\|call\|>", re.DOTALL)


class HarmonyCalls:
    """Calls of known tools, as `HarmonyChannels` hands them on."""

    start = _OPENING

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names

    def begins(self, text: str) -> bool:
        return False

    def calls(self, text: str) -> list[tuple[str, str]]:
        return [
            (name, arguments.strip() or "{}")
            for name, arguments in _CALL.findall(text)
            if name in self._names and _is_object(arguments)
        ]

    def before(self, text: str) -> str:
        return text.partition(self.start)[0].strip()


class HarmonyChannels:
    """Tells reasoning from text by channels; calls come as text that `HarmonyCalls` reads."""

    def __init__(self) -> None:
        self._header: str | None = ""  # of the message that begins; None within a body
        self._kind = ""  # of the message whose body comes: "reasoning", "text" or "call"
        self._held = ""  # the beginning of a token, perhaps
        self._shown = False  # whether a message of text came before
        self._out: tuple[list[str], list[str]] = ([], [])

    def parse_stream_chunk(self, chunk_text: str) -> tuple[str | None, str | None]:
        """Return what of the reply is known now to be reasoning and to be text."""
        text = self._held + chunk_text
        kept = len(text) - partial(text, _TOKENS)
        text, self._held = text[:kept], text[kept:]
        self._read(text)
        return self._taken()

    def parse_stream_end(self) -> tuple[str | None, str | None]:
        """Return what was held back; a header that never ended is text where it holds no token."""
        self._read(self._held)
        self._held = ""
        if self._header is not None and not _TOKEN.search(self._header):
            self._out[1].append(self._header)
        self._end()
        return self._taken()

    def _taken(self) -> tuple[str | None, str | None]:
        reasoning, text = ("".join(part) or None for part in self._out)
        self._out = ([], [])
        return reasoning, text

    def _read(self, text: str) -> None:
        at = 0
        for token in _TOKEN.finditer(text):
            self._words(text[at : token.start()])
            self._token(token[0])
            at = token.end()
        self._words(text[at:])

    def _words(self, text: str) -> None:
        if self._header is None:
            self._out[self._kind != "reasoning"].append(text)
            return
        self._header += text
        if len(self._header) > _LONGEST_HEADER:  # no header at all
            header, self._header, self._kind = self._header, None, "text"
            self._out[1].append(header)

    def _token(self, token: str) -> None:
        if token in _ENDS or token == "<|start|>":
            self._end()
        elif token == "<|message|>" and self._header is not None:
            self._begin(self._header)
        elif self._header is not None:
            self._header += token
        elif token == "<|channel|>":  # a message whose end the model left out
            self._end()
            self._header = token

    def _begin(self, header: str) -> None:
        channel, recipient = _CHANNEL.search(header), _RECIPIENT.search(header)
        self._header = None
        if recipient is not None and recipient[1] not in ("assistant", "user"):
            self._kind = "call"
            self._out[1].append(f"{_OPENING}{recipient[1]}<|message|>")
        elif channel is not None and channel[1] == "analysis":
            self._kind = "reasoning"
        else:
            self._kind = "text"
            if self._shown:
                self._out[1].append("\n\n")
            self._shown = True

    def _end(self) -> None:
        if self._header is None and self._kind == "call":
            self._out[1].append("<|call|>")
        self._header, self._kind = "", ""


def _is_object(text: str) -> bool:
    try:
        return not text.strip() or isinstance(json.loads(text, strict=False), dict)
    except (ValueError, RecursionError):
        return False
