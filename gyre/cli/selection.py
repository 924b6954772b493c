"""The options that say which paths of an execution are trained on: shared by `inspect` and `export`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from ..trajectory.selection import Selection

_FIELDS: Final = ("mode", "max_paths", "seed", "max_tokens", "over_length", "dedup")


def selection_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options to a command, which gets their values as `chosen`, a mapping of those that were given."""
    options = [
        click.option(
            "--select",
            "mode",
            metavar="RULE",
            help="bounded (default), all, main_only, or module:function.",
        ),
        click.option("--max-paths", type=int, help="Most paths of an execution that are drawn (default 5)."),
        click.option("--seed", type=int, help="Seed of the draws (default 0)."),
        click.option("--max-tokens", type=int, help="Most tokens of a path (default: no limit)."),
        click.option("--over-length", metavar="truncate|drop", help="What becomes of longer paths (default truncate)."),
        click.option("--dedup", metavar="token|segment", help="What is trained only once (default token)."),
    ]

    @functools.wraps(command)
    def collected(**values: Any) -> None:
        given = {name: values.pop(name) for name in _FIELDS}
        command(chosen={name: value for name, value in given.items() if value is not None}, **values)

    for option in reversed(options):
        collected = option(collected)
    return collected


def selection_of(chosen: dict[str, Any]) -> Selection:
    """Return the settings of the selection.

    Raises:
        InputError: a value that cannot be.
    """
    from ..toml_file import validated
    from ..trajectory.selection import Selection

    return validated(Selection, chosen, "selection")
