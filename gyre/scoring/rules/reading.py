"""Rules files as they stand: TOML or YAML, nothing in them run, followed or said twice."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any, Final

from ...errors import InputError
from ...toml_file import parse_toml

MOST_BYTES: Final = 1 << 20
_YAML: Final = frozenset({".yaml", ".yml"})
_REMEDY: Final = "see docs/scoring.md"


def read_rules_file(path: Path) -> tuple[dict[str, Any], bytes]:
    """Return what a rules file holds, and its bytes.

    Raises:
        InputError: it is missing, too large (1 MiB), not text, neither `.toml` nor `.yaml`, or not well formed.
    """
    if path.suffix not in {".toml", *_YAML}:
        raise InputError(f"{path}: not a rules file by its name; name it .toml, .yaml or .yml")
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}); give a rules file") from error
    if len(content) > MOST_BYTES:
        raise InputError(f"{path}: larger than {MOST_BYTES:,} bytes; a rules file is small")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not text in UTF-8 ({error.reason} at byte {error.start})") from error
    values = _parse_yaml(text, path) if path.suffix in _YAML else parse_toml(text, str(path), _REMEDY)
    return values, content


def _parse_yaml(text: str, path: Path) -> dict[str, Any]:
    try:
        import yaml
    except ImportError as error:
        raise InputError(f"{path}: YAML needs PyYAML; pip install 'gyre[scoring]', or write TOML") from error
    try:
        values = yaml.load(text, _loader())
    except RecursionError as error:
        raise InputError(f"{path}: not YAML that can be read (nested too deeply); {_REMEDY}") from error
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date that does not exist
        raise InputError(f"{path}: not YAML that can be read ({_said(error)}); {_REMEDY}") from error
    if not isinstance(values, dict):
        raise InputError(f"{path}: holds no table of settings; it needs a key `rules`; {_REMEDY}")
    return values


def _said(error: Exception) -> str:
    """What is wrong and where, in one line, without the excerpt."""
    problem, mark = getattr(error, "problem", None), getattr(error, "problem_mark", None)
    said = " ".join(str(problem or error).split())
    return f"{said}, line {mark.line + 1}" if mark is not None else said


def _loader() -> Any:
    """The safe loader of PyYAML, without aliases (a few lines of them stand for gigabytes) and without double keys."""
    import yaml

    class Loader(yaml.SafeLoader):
        def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
            if self.check_event(yaml.AliasEvent):
                mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
                raise yaml.composer.ComposerError(None, None, "aliases are not taken; write the value out", mark)
            return super().compose_node(parent, index)

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
            seen: set[tuple[str, str]] = set()
            for key, _ in node.value:
                if not isinstance(key, yaml.ScalarNode):
                    raise yaml.constructor.ConstructorError(None, None, "a key must be text", key.start_mark)
                if (key.tag, key.value) in seen:
                    raise yaml.constructor.ConstructorError(None, None, f"key {key.value!r} twice", key.start_mark)
                seen.add((key.tag, key.value))
            return super().construct_mapping(node, deep)

    return Loader
