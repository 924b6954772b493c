"""Text from tokens that come a few at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

_CONTEXT: Final = 6  # tokens before: whether a token begins with a space may depend on them
_INCOMPLETE: Final = 3  # tokens that a character may lack its last byte after
_LONGEST: Final = 8  # tokens to wait for a character; after so many there is none
_NO_CHARACTER: Final = "\ufffd"


class Detokenizer:
    """Appends text as soon as whole characters are there, at a cost that does not grow with what came before."""

    def __init__(self, tokenizer: Any) -> None:
        self._decode = _decoder(tokenizer)
        self._shown: list[int] = []  # the last tokens that are text by now
        self._before = ""  # their text
        self._pending: list[int] = []

    def feed(self, ids: Sequence[int]) -> str:
        """Return the text that the tokens add."""
        self._pending += ids
        for held in range(min(_INCOMPLETE, len(self._pending)) + 1):
            ready = len(self._pending) - held
            if not (text := self._text(ready)).endswith(_NO_CHARACTER):
                return self._take(ready, text)
        if len(self._pending) <= _LONGEST:
            return ""
        return self._take(ready, self._text(ready))

    def end(self) -> str:
        """Return the text of what was held back; bytes that are no character give U+FFFD."""
        return self._take(len(self._pending), self._text(len(self._pending)))

    def _text(self, ready: int) -> str:
        return self._decode(self._shown + self._pending[:ready])[len(self._before) :] if ready else ""

    def _take(self, ready: int, text: str) -> str:
        if ready:
            self._shown = (self._shown + self._pending[:ready])[-_CONTEXT:]
            self._pending = self._pending[ready:]
            self._before = self._decode(self._shown)
        return text


def _decoder(tokenizer: Any) -> Callable[[list[int]], str]:
    """Return what writes tokens as text, special ones too, and leaves its spaces alone.

    Where a tokenizer's `decode` only calls the Rust one's, that does it in a third of the time.
    """
    kind = type(tokenizer)
    plain = kind.decode is PreTrainedTokenizerBase.decode
    if plain and getattr(kind, "_decode", None) is PreTrainedTokenizerFast._decode:
        return partial(tokenizer.backend_tokenizer.decode, skip_special_tokens=False)
    return partial(tokenizer.decode, skip_special_tokens=False, clean_up_tokenization_spaces=False)
