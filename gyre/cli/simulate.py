"""`gyre simulate`: one policy on one workload."""

from __future__ import annotations

import sys
from typing import Any, Final

import click

from .settings import CommonOptions, common_options, with_variant

_INTERRUPTED: Final = 130


@click.command()
@common_options
@click.option("--policy", default="elastic", show_default=True, help="A policy by name, or module:Class for your own.")
@click.option("--phi", type=click.FloatRange(0), help="Depth of dispatch beyond one burst, in batches.")
@click.option("--mu", type=click.IntRange(1), help="Steps in a burst, between two publishes.")
@click.option("--streaming/--no-streaming", default=None, help="Train a group as soon as it is ready.")
@click.option("--train-cells", type=click.IntRange(1), help="async: cells that always train.")
@click.option("--seed", type=click.IntRange(0), help="Seed of the workload and of every draw.")
def simulate(common: CommonOptions, *, policy: str, seed: int | None, **policy_flags: Any) -> None:
    """Simulate one scheduling policy on PROFILE (a bundled name or a file) or on --trace.

    Prints what the run came to; with --out it leaves journal, tables, report and timeline.
    """
    from ..sim.run import check

    keys = {key: value for key, value in policy_flags.items() if value is not None}
    settings = with_variant(common.base_settings(seed=seed), policy, keys)
    check(settings)
    if common.dry_run:
        from ..report.settings_file import settings_toml

        click.echo(settings_toml(settings.model_dump(mode="json")), nl=False)
        return
    complete = _run(settings, policy, common)
    if not complete:
        sys.exit(_INTERRUPTED)


def _run(settings: Any, label: str, common: CommonOptions) -> bool:
    from contextlib import ExitStack

    from rich.console import Console

    from ..report import ResultsFolder, compare_runs, comparison_table
    from .alerts import alerts_table
    from .common import print_tables
    from .interrupt import interruptible
    from .pool import run_all
    from .tasks import Task, with_choices_of

    out = common.out
    with ExitStack() as stack:
        interrupt = stack.enter_context(interruptible())  # before anything is written
        folder = None
        if out is not None:
            settings = with_choices_of(out, Task(label, settings))
            folder = stack.enter_context(
                ResultsFolder.create(out, settings.model_dump(mode="json"), resume=common.resume)
            )
        results = run_all([Task(label, settings, out)], interrupt, jobs=1, quiet=common.as_json)
        if not results:
            click.echo("gyre: stopped before the run had begun; --resume goes on", err=True)
            return False
        (result,) = results
        if folder is not None:
            folder.write_run(result)
    if common.as_json:
        click.echo(result.summary.to_json(), nl=False)
    else:
        Console().print(comparison_table(compare_runs([result], notes=result.summary.extra.get("notes", ()))))
        print_tables(*alerts_table([result]))
        if out is not None:
            click.echo(f"report: {out / 'report.html'}   timeline for ui.perfetto.dev: {out / 'timeline.json'}")
    return result.summary.complete
