"""What commands share: options, what may be overwritten, what is printed where."""

from __future__ import annotations

import json
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
    if path.exists() and not force:
        raise InputError(f"{path}: exists already; choose another name, or overwrite it with --force")


def print_json(values: Any) -> None:
    """Print `values` on stdout."""
    click.echo(json.dumps(values, indent=2))


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
