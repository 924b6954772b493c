"""TOML files and the models that they hold: what is wrong with one is said in a single line."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from .errors import InputError

M = TypeVar("M", bound=BaseModel)

_UNKNOWN: Final = ("extra_forbidden", "unexpected_keyword_argument")  # pydantic's words for an unknown key
MOST_BYTES: Final = 16 * 2**20
MOST_SHOWN: Final = 60  # characters of a refused value


def read_toml(path: Path, remedy: str = "give a TOML file in UTF-8") -> dict[str, Any]:
    """Read a TOML file; `remedy` ends the message where that fails.

    Raises:
        InputError: the file is missing, larger than 16 MiB, not text or not TOML.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise InputError(f"{path}: larger than {MOST_BYTES:,} bytes; {remedy}")
        text = content.decode("utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}); {remedy}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: cannot be read as text ({_one_line(error)}); {remedy}") from error
    return parse_toml(text, str(path), remedy)


def parse_toml(text: str, where: str, remedy: str = "") -> dict[str, Any]:
    """Parse TOML; `where` begins the message where that fails.

    Raises:
        InputError: the text is not TOML.
    """
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise InputError(f"{where}: not TOML that can be read (nested too deeply){_after(remedy)}") from error
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{where}: not TOML ({_one_line(error)}){_after(remedy)}") from error


def validated(kind: type[M], values: Any, where: str, remedy: str = "") -> M:
    """Build a model from what a file or a person gave.

    Raises:
        InputError: the first violation, in one line that names `where` and the field, and how many more there are.
    """
    try:
        made = kind.model_validate(values)
    except ValidationError as error:
        raise InputError(f"{where}: {_first_violation(kind, error)}{_after(remedy)}") from error
    if key := _number_given_as_bool(values, made):
        raise InputError(f"{where}: {key}: true or false; give a number{_after(remedy)}")
    return made


def toml_names(folder: Traversable) -> tuple[str, ...]:
    """Names of the TOML files in a folder, without their ending, sorted."""
    return tuple(sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml")))


def _first_violation(kind: type[BaseModel], error: ValidationError) -> str:
    """The first violation as `table.key: what is wrong`, and how many more there are."""
    # A required key that is misspelt is missing and unknown; unknown says more.
    first, *more = sorted(error.errors(include_url=False), key=lambda one: one["type"] not in _UNKNOWN)
    field = ".".join(str(part) for part in first["loc"])
    match first["type"]:
        case "missing":
            message = "missing"
        case kind_of_error if kind_of_error in _UNKNOWN:
            known = _known_keys(kind, first["loc"][:-1])
            message = f"unknown key; known keys: {', '.join(known)}" if known else "unknown key"
        case "value_error":
            message = _one_line(first["msg"].removeprefix("Value error, "))
        case _:
            message = f"{_one_line(first['msg'])} (got {_one_line(repr(first['input']))[:MOST_SHOWN]})"
    others = f" (and {len(more)} more)" if more else ""
    return f"{field + ': ' if field else ''}{message}{others}"


def _number_given_as_bool(given: Any, made: Any) -> str:
    """The first key, dotted, that holds a bool and was taken for a number, as pydantic takes it; "" where none does."""
    for key, value, taken in _pairs(given, made):
        if isinstance(value, bool) and isinstance(taken, int | float) and not isinstance(taken, bool):
            return str(key)
        if inner := _number_given_as_bool(value, taken):
            return f"{key}.{inner}"
    return ""


def _pairs(given: Any, made: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Give each key or place of a table or list, what it held, and what that was taken for."""
    if isinstance(given, Mapping):
        for key, value in given.items():
            yield key, value, made.get(key) if isinstance(made, Mapping) else getattr(made, str(key), None)
    elif isinstance(given, list | tuple) and isinstance(made, list | tuple) and len(given) == len(made):
        for place, (value, taken) in enumerate(zip(given, made, strict=True)):
            yield place, value, taken


def _known_keys(kind: type[BaseModel], path: tuple[int | str, ...]) -> list[str]:
    """Keys of the table at `path` below a model; it may be declared `Table` or `Table | None`."""
    for key in path:
        declared = kind.model_fields[str(key)].annotation if str(key) in kind.model_fields else None
        tables = [one for one in (declared, *get_args(declared)) if isinstance(one, type)]
        if any(is_dataclass(one) for one in tables):
            return [field.name for one in tables if is_dataclass(one) for field in fields(one)]
        tables = [one for one in tables if issubclass(one, BaseModel)]
        if not tables:
            return []
        kind = tables[0]
    return list(kind.model_fields)


def _after(remedy: str) -> str:
    return f"; {remedy}" if remedy else ""


def _one_line(text: object) -> str:
    return " ".join(str(text).split())
