"""Tokens for people: as text where a tokenizer is at hand, else as ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Self

from ...arrays import Int32Array
from ...errors import InputError

_HEAD: Final = 48  # tokens shown from the start of a segment
_TAIL: Final = 16  # and from its end
_HEAD_IDS: Final = 10
_TAIL_IDS: Final = 4


class TokenText:
    """Shows the ends of a run of tokens."""

    def __init__(self, decode: Callable[[Sequence[int]], str] | None = None) -> None:
        """Show tokens by `decode` (ids to text), or as ids without it."""
        self._decode = decode

    @classmethod
    def of_tokenizer(cls, name: str) -> Self:
        """Load a tokenizer by name or path with the package transformers.

        Raises:
            InputError: the package is not installed, or it cannot load the tokenizer.
        """
        try:
            from transformers import AutoTokenizer  # type: ignore[import-not-found,unused-ignore]
        except ImportError as error:
            raise InputError(
                "--tokenizer: needs the package transformers; install it (pip install transformers), or leave the "
                "option out to see token ids"
            ) from error
        try:
            tokenizer = AutoTokenizer.from_pretrained(name)
        except Exception as error:  # it raises many kinds, some of packages of its own
            why = " ".join(str(error).split())[:200]
            raise InputError(
                f"--tokenizer {name}: cannot be loaded ({why}); give a folder or a model's name"
            ) from error
        return cls(lambda ids: str(tokenizer.decode(list(ids), skip_special_tokens=False)))

    def __call__(self, tokens: Int32Array) -> str:
        """Return one line for `tokens` (n,), cut in the middle where it is long."""
        if self._decode is None:
            shown = self._cut(tokens, _HEAD_IDS, _TAIL_IDS, lambda ids: " ".join(map(str, ids)))
            return f"ids {shown}"
        return self._cut(tokens, _HEAD, _TAIL, self._decode)

    @staticmethod
    def _cut(tokens: Int32Array, head: int, tail: int, show: Callable[[Sequence[int]], str]) -> str:
        if len(tokens) <= head + tail:
            return printable(show(tokens.tolist()))
        return printable(f"{show(tokens[:head].tolist())} … {show(tokens[-tail:].tolist())}")


def printable(text: str, most: int = 400) -> str:
    """Return `text` on one line without control characters (they could drive a terminal), at most `most` characters."""
    cut = text if len(text) <= most else text[: most - 1] + "…"
    line = cut.replace("\n", "⏎").replace("\t", " ")
    return "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in line)
