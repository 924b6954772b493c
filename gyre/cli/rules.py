"""`gyre rules`: look at a rules file, and whether its rules can be relied on."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ..atomic import write_text_atomic
from ..errors import InputError
from .common import OUT_FILE, counted, force_option, json_option, print_json, print_tables, refuse_existing

if TYPE_CHECKING:
    from ..scoring.evaluation import Subject
    from ..scoring.rules.rule_set import RuleSet
    from ..scoring.rules.stability import Stability

_FILE: Final = click.Path(path_type=Path, dir_okay=False)
_FOLDER: Final = click.Path(path_type=Path, file_okay=False)
_UNSTABLE: Final = 1
_BAD_INPUT: Final = 2
_version_option = click.option(
    "--version", type=click.IntRange(0), help="Version of the weights. Default: from which on all rules count whole."
)


@click.group()
def rules() -> None:
    """Look at rules that score executions, and check that the same input always gives the same score."""


@rules.command()
@click.argument("file", type=_FILE)
@click.option("--folder", "folders", type=_FOLDER, multiple=True, required=True, help="Artefacts; again for more.")
@click.option("--times", type=click.IntRange(3), default=5, show_default=True, help="Evaluations of each folder.")
@click.option("--jobs", type=click.IntRange(1), help="Evaluations side by side. Default: all cores.")
@_version_option
@click.option("--task-data", type=_FILE, help="JSON object with the fields of the task.")
@click.option("--answer", type=_FILE, help="File with the last text of the policy.")
@click.option("--steps", type=click.IntRange(0), help="Steps of the execution.")
@click.option("--tool-calls", type=click.IntRange(0), help="Tool calls of the execution.")
@json_option
def check(
    *,
    file: Path,
    folders: tuple[Path, ...],
    times: int,
    jobs: int | None,
    version: int | None,
    task_data: Path | None,
    answer: Path | None,
    steps: int | None,
    tool_calls: int | None,
    as_json: bool,
) -> None:
    """Evaluate folders many times, and name each rule whose outcome differs on the same input.

    Rules run one by one in the order of FILE, in reverse and shuffled, and side by side, each time on a fresh copy.
    Exit code 1: a rule's outcome differs. Exit code 2: FILE cannot be used, or a rule does not work here.
    """
    from ..scoring.evaluation import Subject
    from ..scoring.rules.rule_set import load_rules
    from ..scoring.rules.stability_summary import stability_json
    from .rules_tables import stability_tables

    found = load_rules(file)
    subject = Subject(
        execution="check",
        version=found.last_version if version is None else version,
        answer=None if answer is None else _text(answer),
        data={} if task_data is None else _task_data(task_data),
        steps=steps,
        tool_calls=tool_calls,
    )
    stability = _checked(found, _subjects(subject, folders), times, jobs or os.cpu_count() or 1, quiet=as_json)
    if as_json:
        print_json(stability_json(stability))
    else:
        print_tables(*stability_tables(stability))
    if stability.flips:
        sys.exit(_UNSTABLE)
    if stability.broken:
        first = stability.broken[0]
        raise InputError(f"{file}: rule {first.rule.name!r}: does not work on {first.folder}: {first.seen[0].detail}")


def _subjects(subject: Subject, folders: tuple[Path, ...]) -> list[Subject]:
    from dataclasses import replace

    for folder in folders:
        if not folder.is_dir():
            raise InputError(f"{folder}: no such folder; give one with an execution's artefacts to --folder")
    return [replace(subject, folder=folder) for folder in folders]


def _checked(found: RuleSet, subjects: list[Subject], times: int, jobs: int, *, quiet: bool) -> Stability:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from ..scoring.rules.stability import check_stability

    console = Console(stderr=True)
    columns = (TextColumn("evaluations"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as progress:
        bar = progress.add_task("", total=len(subjects) * times)
        return asyncio.run(check_stability(found, subjects, times, jobs, lambda: progress.advance(bar)))


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from error


def _task_data(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(_text(path))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON ({error}); give an object with the fields of the task") from error
    if not isinstance(found, dict):
        raise InputError(f"{path}: no JSON object; give one with the fields of the task")
    return found


@rules.command()
@click.argument("file", type=_FILE)
@_version_option
@json_option
def explain(*, file: Path, version: int | None, as_json: bool) -> None:
    """Show the rules of FILE, what each weighs and from when on, and how they become a score."""
    from ..scoring.rules.rule_set import load_rules
    from .rules_tables import explanation_json, explanation_tables

    found = load_rules(file)
    at = found.last_version if version is None else version
    if as_json:
        print_json(explanation_json(found, at))
    else:
        print_tables(*explanation_tables(found, at))


@rules.command()
@click.argument("file", type=OUT_FILE)
@click.option("--kind", "kinds", multiple=True, help="Only this kind of rule; again for more. Default: all.")
@force_option
def new(*, file: Path, kinds: tuple[str, ...], force: bool) -> None:
    """Write a rules file to begin with, TOML, with a rule of each kind."""
    from ..scoring.rules.starter import starter

    if file.suffix != ".toml":
        raise InputError(f"{file}: not a name for TOML; name it .toml")
    refuse_existing(file, force=force)
    text, number = starter(kinds)
    write_text_atomic(file, text)
    click.echo(f"{file}: {counted(number, 'rule')}; look at it with `gyre rules explain {file}`")
