"""Text of messages that spells control tokens: tokenised as the text that it is.

A file that an agent reads may hold `<|im_end|>`. In a rendered conversation nothing tells that from the template's
own, and as the control token it would end the turn and could forge others. So before rendering, a mark is put into
each such spelling in a message; a stretch of rendered text that holds a mark is tokenised, without the marks, by a
tokenizer that knows no control tokens. Only tokens that the tokenizer calls special are control tokens: such as
`<think>` or `<tool_call>`, which many do not, stay what they are.
"""

from __future__ import annotations

import copy
import re
import secrets
from functools import cached_property
from typing import Any, Final

_MARK: Final = "gyreplain" + secrets.token_hex(8)  # in no conversation


class Controls:
    """The control tokens of a tokenizer, and how to write them as mere text."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        tokens = [token for token in tokenizer.added_tokens_decoder.values() if token.special and token.content]
        tokens.sort(key=lambda token: -len(token.content))  # where one begins with another, the longer is meant
        self._spelled = re.compile(_any_of([token.content for token in tokens])) if tokens else None
        # A control token may take white space around it along: that belongs to it, not to the text beside it.
        space = r"\s*"
        taken = (space * t.lstrip + re.escape(t.content) + space * t.rstrip for t in tokens)
        self._boundary = re.compile(f"({'|'.join(taken)})") if tokens else None

    def marked(self, value: Any) -> Any:
        """Return text with a mark in each spelling of a control token; of lists and dicts, all text in them."""
        if isinstance(value, str):
            return value if self._spelled is None else self._spelled.sub(_with_mark, value)
        if isinstance(value, dict):
            return {self.marked(key): self.marked(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.marked(item) for item in value]
        return value

    def ids(self, text: str) -> list[int]:
        """Tokenise rendered text: control tokens are those without a mark."""
        if _MARK not in text or self._boundary is None:
            return self._with_controls(text)
        ids: list[int] = []
        run = ""  # of stretches without marks, and the control tokens between
        for stretch in self._boundary.split(text):
            if _MARK in stretch:
                ids += self._with_controls(run) + self._as_text(unmarked(stretch))
                run = ""
            else:
                run += stretch
        return ids + self._with_controls(run)

    def _with_controls(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False, verbose=False) if text else []
        return ids

    def _as_text(self, text: str) -> list[int]:
        if self._plain is None:
            slow: list[int] = self._tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
            return slow
        ids: list[int] = self._plain.encode(text, add_special_tokens=False).ids
        return ids

    @cached_property
    def _plain(self) -> Any:
        """A copy that knows no control tokens: the tokenizer itself is in use by other threads."""
        backend = getattr(self._tokenizer, "backend_tokenizer", None)
        if backend is None:
            return None
        plain = copy.deepcopy(backend)
        plain.no_truncation()
        plain.no_padding()
        plain.encode_special_tokens = True
        return plain


def unmarked(text: str) -> str:
    """Return the text without marks."""
    return text.replace(_MARK, "") if _MARK in text else text


def _any_of(words: list[str]) -> str:
    """Return a pattern, the words by their first two characters: tokenizers may have a thousand, all with `<`."""
    heads: dict[str, list[str]] = {}
    for word in words:
        heads.setdefault(word[:2], []).append(re.escape(word[2:]))
    longest = sorted(heads, key=len, reverse=True)
    return "|".join(f"{re.escape(head)}(?:{'|'.join(heads[head])})" for head in longest)


def _with_mark(spelled: re.Match[str]) -> str:
    word = spelled[0]
    return word[:1] + _MARK + word[1:]
