"""Whether an engine serves the model that requests are rendered for, as far as that can be told from outside.

Token ids mean nothing to another model, and one with as many of them takes them without a word.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from .engine import WrongModelError

_log = logging.getLogger(__name__)
# Words that every way of cutting text up before it is tokenised leaves whole, and what newer models of a family add.
PROBE_TEXT: Final = (
    "the first people who came over this river found nothing there but a house of wood and some water"
    "<think></think><tool_call></tool_call><tool_response></tool_response>"
)
# Of config.json: how large the network is. Weights that are trained, or written in another form, keep these.
_FIGURES: Final = (
    *("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "intermediate_size"),
    *("num_experts", "n_routed_experts", "moe_intermediate_size"),
)


@dataclass(frozen=True, slots=True)
class ModelMarks:
    """What a model is known by."""

    token_ids: tuple[int, ...]  # of PROBE_TEXT
    figures: Mapping[str, int]  # of its config.json; empty where there is none

    def tokenizer_agrees(self, answer: object) -> bool | None:
        """Tell whether an answer to `/tokenize` has the same tokens; None where it has none at all."""
        said = answer.get("tokens") if isinstance(answer, dict) else None
        return tuple(said) == self.token_ids if isinstance(said, list) and said else None

    def size_agrees(self, model_path: object) -> bool | None:
        """Tell whether the model in a folder is as large; None where the folder is not on this machine."""
        other = model_figures(Path(str(model_path or "")))
        common = self.figures.keys() & other.keys()
        return all(self.figures[name] == other[name] for name in common) if common else None


class SameModel:
    """Looks once at each server that is started at an engine's address, and at each model that it loads."""

    def __init__(self, engine: str, marks: ModelMarks | None) -> None:
        """`marks` are those of the model that it should have; None: any will do."""
        self._engine = engine
        self._marks = marks
        self._looked_at: tuple[object, object] | None = None
        self._unproven = False

    async def unproven(
        self, server: Mapping[str, Any], model: Mapping[str, Any], tokenized: Callable[[str], Awaitable[object]]
    ) -> bool:
        """Return whether it cannot be told which model it has; `server` and `model` are what it says of itself.

        Raises:
            WrongModelError: it has another than it should.
        """
        path, marks = model.get("model_path"), self._marks
        if marks is None or self._looked_at == (server.get("startup_time"), path):
            return self._unproven
        tokens, size = marks.tokenizer_agrees(await tokenized(PROBE_TEXT)), marks.size_agrees(path)
        if tokens is False or size is False:
            what = "its tokenizer makes other tokens" if tokens is False else "its network has another size"
            raise WrongModelError(f"{self._engine} serves {path}, another model than requests are made for: {what}")
        self._unproven = tokens is size is None
        if self._unproven:
            _log.warning("%s serves %s: whether that is the right model cannot be told", self._engine, path)
        self._looked_at = server.get("startup_time"), path
        return self._unproven


def model_figures(folder: Path) -> dict[str, int]:
    """Return how large a model's network is by its config.json; nothing where that cannot be read."""
    found: dict[str, int] = {}
    for part in config_parts(folder):
        found |= {name: part[name] for name in _FIGURES if isinstance(part.get(name), int)}
    return found


def config_parts(folder: Path) -> tuple[dict[str, Any], ...]:
    """Return a model's configuration and that of its text model, where it has one; nothing where none can be read."""
    try:
        config = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError):
        return ()
    parts = (config, config.get("text_config")) if isinstance(config, dict) else ()
    return tuple(part for part in parts if isinstance(part, dict))
