"""What evaluations depend on, as one name: those of another name are made again."""

from __future__ import annotations

import hashlib
from pathlib import Path

from pydantic_core import to_json

from ..errors import InputError
from .settings import EvaluatorSettings, RulesSettings
from .state import folder_digest


def identity_of(settings: EvaluatorSettings) -> str:
    """Return a name of what these settings judge by: they, and the content of the files that they name, wherever those
    lie.

    Raises:
        InputError: such a file is not there, cannot be read or cannot be used.
    """
    digest = hashlib.sha256(to_json(settings.model_dump(mode="json", exclude={"budget_s", *settings.paths})))
    for path in _sources(settings):
        digest.update(_content(path))
    return f"{settings.kind}:{digest.hexdigest()[:16]}"


def _sources(settings: EvaluatorSettings) -> list[Path]:
    """What the settings name, and for rules what these name beside their file; not what modules import."""
    if not isinstance(settings, RulesSettings):
        return settings.sources()
    from .rules import load_rules

    return [settings.file, *load_rules(settings.file).belongings()]


def _content(path: Path) -> bytes:
    try:
        return folder_digest(path).encode() if path.is_dir() else hashlib.sha256(path.read_bytes()).digest()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}); give another path") from error
