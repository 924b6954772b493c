"""`gyre simulate`: one policy on one workload."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

import click

from .settings import base_settings, refuse_resume_of_nothing, with_variant, workload_options

_INTERRUPTED: Final = 130


@click.command()
@workload_options
@click.option("--policy", default="elastic", show_default=True, help="A policy by name, or module:Class for your own.")
@click.option("--phi", type=click.FloatRange(0), help="Depth of dispatch beyond one burst, in batches.")
@click.option("--mu", type=click.IntRange(1), help="Steps in a burst, between two publishes.")
@click.option("--streaming/--no-streaming", default=None, help="Train a group as soon as it is ready.")
@click.option("--train-cells", type=click.IntRange(1), help="async: cells that always train.")
@click.option("--seed", type=click.IntRange(0), help="Seed of the workload and of every draw.")
def simulate(
    *,
    profile: str | None,
    trace: Path | None,
    settings_file: Path | None,
    overrides: tuple[str, ...],
    steps: int | None,
    cells: int | None,
    hardware: str | None,
    out: Path | None,
    resume: bool,
    as_json: bool,
    dry_run: bool,
    policy: str,
    seed: int | None,
    **policy_flags: Any,
) -> None:
    """Simulate one scheduling policy on PROFILE (a bundled name or a file) or on --trace.

    Prints what the run came to; with --out it leaves journal, tables, report and timeline.
    """
    from ..sim.run import check

    refuse_resume_of_nothing(out, resume)
    flags = {"training.steps": steps, "cluster.cells": cells, "cluster.hardware": hardware, "seed": seed}
    base = base_settings(profile, trace, settings_file, overrides, flags)
    keys = {key: value for key, value in policy_flags.items() if value is not None}
    settings = with_variant(base, policy, keys)
    check(settings)
    if dry_run:
        from ..report.settings_file import settings_toml

        click.echo(settings_toml(settings.model_dump(mode="json")), nl=False)
        return
    complete = _run(settings, policy, out, resume, as_json)
    if not complete:
        sys.exit(_INTERRUPTED)


def _run(settings: Any, label: str, out: Path | None, resume: bool, as_json: bool) -> bool:
    from contextlib import ExitStack

    from rich.console import Console

    from ..report import ResultsFolder, compare_runs, comparison_table
    from .pool import run_all
    from .tasks import Task, with_choices_of

    with ExitStack() as stack:
        folder = None
        if out is not None:
            settings = with_choices_of(out, Task(label, settings))
            folder = stack.enter_context(ResultsFolder.create(out, settings.model_dump(mode="json"), resume=resume))
        results = run_all([Task(label, settings, out)], jobs=1, quiet=as_json)
        if not results:
            click.echo("gyre: stopped before the run had begun; --resume goes on", err=True)
            return False
        (result,) = results
        if folder is not None:
            folder.write_run(result)
    if as_json:
        click.echo(result.summary.to_json(), nl=False)
    else:
        Console().print(comparison_table(compare_runs([result], notes=result.summary.extra.get("notes", ()))))
        if out is not None:
            click.echo(f"report: {out / 'report.html'}   timeline for ui.perfetto.dev: {out / 'timeline.json'}")
    return result.summary.complete
