"""Text of messages that spells control tokens: tokenised as the text that it is.

A file that an agent reads may hold `<|im_end|>` or `</think>`. In a rendered conversation nothing tells that from the
template's own, and as the control token it would end the turn or forge another, a call or the end of a thought. So
before rendering, a mark is put into each such spelling in a message; a stretch of rendered text that holds a mark is
tokenised, without the marks, by a tokenizer that knows no control tokens. (SGLang and vLLM tokenise the rendered
text as a whole: there a tool's result can forge a turn.)

Control tokens are those that the tokenizer calls special. Of the others that it adds, those which the chat template
itself writes, such as `<think>` or `<tool_call>` with Qwen3, or whose spelling is `<|…|>`, are structure: a user's
message, a tool's result, a tool and the arguments of a call cannot write them; the operator's own words and the
model's text can. The rest (runs of spaces, tags of HTML) are words like others.
"""

from __future__ import annotations

import copy
import re
import secrets
from functools import cached_property
from typing import Any, Final

from tokenizers import AddedToken

_MARK: Final = "gyreplain" + secrets.token_hex(8)  # in no conversation
_CONTROL_SHAPE: Final = re.compile(r"<[|\uff5c].+[|\uff5c]>")


class Controls:
    """The control tokens of a tokenizer, and how to write them as mere text."""

    def __init__(self, tokenizer: Any, template: str = "") -> None:
        """`template` is the chat template's source, which shows what is structure."""
        self._tokenizer = tokenizer
        added = [token for token in tokenizer.added_tokens_decoder.values() if token.content.strip()]
        added.sort(key=lambda token: -len(token.content))  # where one begins with another, the longer is meant
        self._structure = [token for token in added if token.special or _is_structure(token.content, template)]
        self._special_spelled = _any_of([token.content for token in self._structure if token.special])
        self._spelled = _any_of([token.content for token in self._structure])
        # A control token may take white space around it along: that belongs to it, not to the text beside it.
        space = r"\s*"
        taken = [space * t.lstrip + re.escape(t.content) + space * t.rstrip for t in self._structure]
        self._boundary = re.compile(f"({'|'.join(taken)})") if taken else None

    def marked(self, value: Any, *, structure: bool = False) -> Any:
        """Return text with a mark in each spelling of a control token; of lists and dicts, all text in them.

        With `structure` those that are not special are let be.
        """
        if isinstance(value, str):
            spelled = self._special_spelled if structure else self._spelled
            return value if spelled is None else spelled.sub(_with_mark, value)
        if isinstance(value, dict):
            return {
                self.marked(key, structure=structure): self.marked(item, structure=structure)
                for key, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.marked(item, structure=structure) for item in value]
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
        plain.encode_special_tokens = True  # of special ones only: so all that is structure becomes special
        plain.add_special_tokens([_as_special(token) for token in self._structure if not token.special])
        return plain


def unmarked(text: str) -> str:
    """Return the text without marks."""
    return text.replace(_MARK, "") if _MARK in text else text


def _is_structure(spelling: str, template: str) -> bool:
    return spelling in template or _CONTROL_SHAPE.fullmatch(spelling) is not None


def _as_special(token: Any) -> AddedToken:
    return AddedToken(
        token.content,
        single_word=token.single_word,
        lstrip=token.lstrip,
        rstrip=token.rstrip,
        normalized=token.normalized,
        special=True,
    )


def _any_of(words: list[str]) -> re.Pattern[str] | None:
    """Return a pattern, the words by their first two characters: tokenizers may have a thousand, all with `<`."""
    heads: dict[str, list[str]] = {}
    for word in words:
        heads.setdefault(word[:2], []).append(re.escape(word[2:]))
    longest = sorted(heads, key=len, reverse=True)
    return re.compile("|".join(f"{re.escape(head)}(?:{'|'.join(heads[head])})" for head in longest)) if words else None


def _with_mark(spelled: re.Match[str]) -> str:
    word = spelled[0]
    return word[:1] + _MARK + word[1:]
