"""What commands share: options, what may be overwritten, what is printed where."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click

from ..errors import InputError

OUT_FOLDER: Final = click.Path(path_type=Path, file_okay=False)
OUT_FILE: Final = click.Path(path_type=Path, dir_okay=False)
_UNCUT: Final = 260  # characters of a line
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")
force_option = click.option("--force", is_flag=True, help="Overwrite what is there.")


def refuse_existing(path: Path, *, force: bool) -> None:
    """Raise `InputError` if `path` exists and `force` is not given, before any work is done for it."""
    try:
        there = path.exists()
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise InputError(f"{path}: cannot be written ({why}); give another name or folder") from error
    if there and not force:
        raise InputError(f"{path}: exists already; choose another name, or overwrite it with --force")


def check_out_file(path: Path, *, force: bool) -> None:
    """Raise `InputError` if the file `path` could not be written, before any work is done for it."""
    refuse_existing(path, force=force)
    if not path.absolute().parent.is_dir():
        raise InputError(f"{path}: cannot be written (no such folder); make it, or give another name")


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, as `1 group` or `2,000 groups`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def print_json(values: Any) -> None:
    """Print `values` on stdout; NaN and infinity, which JSON has not, as null."""
    click.echo(json.dumps(_with_json_form(values), indent=2, allow_nan=False))


def _with_json_form(values: Any) -> Any:
    if isinstance(values, dict):
        return {name: _with_json_form(value) for name, value in values.items()}
    if isinstance(values, list | tuple):
        return [_with_json_form(value) for value in values]
    return None if isinstance(values, float) and not math.isfinite(values) else values


def print_tables(*parts: Any) -> None:
    """Print what rich can show; where nobody's terminal sets a width, lines keep their length."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console = Console(width=_UNCUT)
    for part in parts:
        console.print(part)


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show a spinner on stderr, where that is a terminal."""
    from rich.console import Console

    with Console(stderr=True).status(what):
        yield
