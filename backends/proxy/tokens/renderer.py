"""A model's tokenizer and chat template: requests as text and as token ids."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import jinja2
import numpy as np
from transformers import AutoTokenizer

from gyre.arrays import Int32Array
from gyre.errors import InputError

from ...engines.engine import Sampling
from ...engines.same_model import PROBE_TEXT, ModelMarks, config_parts, model_figures
from ..conversation import Message, Request, Speaker
from .constraint import constraint
from .controls import Controls
from .habits import find_habits
from .parsers import Parsers
from .seam import Seams
from .template import STRUCTURED, ChatTemplate, TemplateRefusalError

_FAULTS: Final = (jinja2.TemplateError, TypeError, ValueError, KeyError, AttributeError, IndexError)


class Renderer:
    """Tokenizer and chat template of the model in a folder (or of a name that transformers knows).

    `template` stands in for the model's own chat template; `template_kwargs` are handed to it, such as
    {"enable_thinking": False}. `structured` are those in whose text `<think>` and the like are tokens (see `Controls`).

    Raises:
        InputError: there is no tokenizer or no chat template, or a parser's name is unknown.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        parsers: Parsers | None = None,
        template: str | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
        structured: frozenset[Speaker] = STRUCTURED,
    ) -> None:
        try:
            self.tokenizer: Any = AutoTokenizer.from_pretrained(str(path))
        except (OSError, ValueError) as error:
            raise InputError(f"{path}: no tokenizer could be read: {str(error).splitlines()[0]}") from error
        if template is not None:
            self.tokenizer.chat_template = template
        if not self.tokenizer.chat_template:
            raise InputError(f"{path}: the tokenizer has no chat template; name one")
        self._kwargs = dict(template_kwargs or {})
        self.parsers = parsers if parsers is not None else Parsers()
        self._controls = Controls(self.tokenizer, str(self.tokenizer.chat_template))
        self.template = ChatTemplate(self._render, find_habits(self._render), self._controls.marked, structured)
        self.special_ids = frozenset(map(int, self.tokenizer.all_special_ids))
        added = self.tokenizer.added_tokens_decoder.values()
        self._specials = sorted((token.content for token in added if token.special), key=len, reverse=True)
        self.vocabulary = self._vocabulary(Path(path))
        probe = self.tokenizer.encode(PROBE_TEXT, add_special_tokens=False)
        self.marks = ModelMarks(tuple(probe), model_figures(Path(path)))
        try:
            self.stop_ids = self._stop_ids(Path(path))
            self.seams = Seams(self)
            self.opening = self._opening()
        except TemplateRefusalError as error:
            raise InputError(f"{path}: the chat template takes not even a question: {error}; name another") from error

    def _render(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None, generate: bool) -> str:
        try:
            text: str = self.tokenizer.apply_chat_template(
                messages, tools=tools, tokenize=False, add_generation_prompt=generate, **self._kwargs
            )
        except _FAULTS as error:
            raise TemplateRefusalError(f"messages: the model's chat template refuses them: {error}") from error
        return text

    def _opening(self) -> str:
        """Return what the template writes of the model's turn before the model goes on, such as `<think>`."""
        user = [Message(Speaker.USER, "question")]
        closed, opened = (self.template.text(user, generate=generate) for generate in (False, True))
        return opened[len(closed) :] if opened.startswith(closed) else ""

    def _stop_ids(self, folder: Path) -> frozenset[int]:
        """Return the tokens at which a turn ends: the model's own, and the one that its template writes there."""
        ids = {self.tokenizer.eos_token_id}
        settings = folder / "generation_config.json"
        if settings.is_file():
            named = json.loads(settings.read_text()).get("eos_token_id")
            ids.update(named if isinstance(named, list) else [named])
        mark = "gyreprobe"
        turn = [Message(Speaker.USER, "question"), Message(Speaker.ASSISTANT, mark)]
        close = self.ids(self.template.text(turn, generate=False).rpartition(mark)[2]).tolist()
        special = [token for token in close if token in self.special_ids]
        if not ids.intersection(close):
            ids.update(special[:1])
        return frozenset(int(token) for token in ids if token is not None)

    def _vocabulary(self, folder: Path) -> int:
        """Return how many token ids there are: a model may have more than its tokenizer, and samples them too."""
        known: int = len(self.tokenizer)
        sizes = (part.get("vocab_size") for part in config_parts(folder))
        return max(known, *(size for size in sizes if isinstance(size, int)), 0)

    def text(self, request: Request) -> str:
        """Write the request up to where the model's turn begins.

        Raises:
            BadRequestError: the template refuses the messages.
        """
        return self.template.text(request.messages, request.tools, generate=True)

    def ids(self, text: str) -> Int32Array:
        """Tokenise text (n int32) in which special tokens stand as the template writes them; none is added.

        What a message spells like one is tokenised as text (see `Controls`).
        """
        text = text.encode("utf-8", "replace").decode()  # JSON may hold halves of surrogate pairs, tokenizers not
        return np.array(self._controls.ids(text), np.int32)

    def special_at(self, text: str, at: int) -> str:
        """Return the special token that stands in rendered text at a place, "" where none does."""
        return next((word for word in self._specials if text.startswith(word, at)), "")

    def count(self, request: Request) -> int:
        """Return how many input tokens the request has, as a new conversation.

        Raises:
            BadRequestError: the template refuses the messages.
        """
        return len(self.ids(self.text(request)))

    def sampling(self, request: Request, settings: Sampling, room: int) -> Sampling:
        """Return gyre's `settings` with what is the harness's to ask: fewer tokens, stop strings, a form of output.

        `room` is how many tokens still fit; at least one is asked for.
        """
        most = min(settings.max_new_tokens, room, *([] if request.max_tokens is None else [request.max_tokens]))
        return replace(
            settings,
            max_new_tokens=max(1, most),
            stop_token_ids=tuple(sorted({*settings.stop_token_ids, *self.stop_ids})),
            stop=(*settings.stop, *request.stop),
            constraint={**settings.constraint, **constraint(request, self.parsers)},
        )
