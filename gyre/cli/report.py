"""`gyre report`: draw the report of a results folder again."""

from __future__ import annotations

from pathlib import Path

import click

from .common import OUT_FILE, OUT_FOLDER, json_option, print_json, print_tables


@click.command()
@click.argument("folder", type=OUT_FOLDER)
@click.option("--baseline", type=OUT_FOLDER, help="Results of a run on the same tasks, such as the untrained model's.")
@click.option("--watch", "watch_file", type=OUT_FILE, help="TOML file with a table [watch]: thresholds of alerts.")
@click.option(
    "--calls",
    type=click.Path(path_type=Path),
    help="Recorded calls or trajectory store of the run: the executions to read get pages.",
)
@click.option(
    "--calls-name",
    default="{execution}",
    show_default=True,
    metavar="PATTERN",
    help="How --calls names an execution; {execution} and {group} are put in.",
)
@click.option(
    "--read-seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the executions to read."
)
@json_option
def report(
    folder: Path,
    *,
    baseline: Path | None,
    watch_file: Path | None,
    calls: Path | None,
    calls_name: str,
    read_seed: int,
    as_json: bool,
) -> None:
    """Read the journals in FOLDER, write its summary, tables, metrics, alerts, report and timeline anew.

    Prints the figures, and the alerts. Works for simulated and real runs, and for what a stopped run left.
    """
    from ..errors import InputError
    from ..report import ResultsFolder, compare_runs, comparison_table, open_results
    from ..report.folder import JOURNAL
    from ..report.settings_file import read_settings
    from ..watch import read_watch_settings
    from .alerts import alerts_table
    from .run_health import RunHealthParts

    with ResultsFolder.create(folder, read_settings(folder), resume=True) as target:
        results = open_results(folder, None if watch_file is None else read_watch_settings(watch_file))
        parts = None
        if results.comparison is None:
            parts = RunHealthParts.of(results.runs[0], baseline, calls, calls_name, read_seed)
            links = parts.write_pages(target.path)
            target.write_run(results.runs[0], more=parts.html(links))
        elif baseline is not None or calls is not None:
            raise InputError(f"{folder}: --baseline and --calls are for one run; give a folder below its runs/")
        else:
            target.write_comparison(results.runs, results.comparison)
    for run in results.runs:
        if run.summary.problems:
            where = folder if results.comparison is None else target.run_path(run.policy, run.summary.seed)
            problems = run.summary.problems_in_words
            click.echo(f"warning: {where / JOURNAL}: {problems}; the figures leave that out", err=True)
    for line in () if parts is None else parts.problems:
        click.echo(f"warning: {line}", err=True)
    shown = results.comparison
    if as_json:
        if parts is None or not parts.asked:
            click.echo(results.runs[0].summary.to_json() if shown is None else shown.to_json(), nl=False)
        else:
            print_json({"summary": results.runs[0].summary.model_dump(mode="json"), **parts.to_json()})
        return
    print_tables(comparison_table(compare_runs(results.runs) if shown is None else shown))
    print_tables(*alerts_table(results.runs), *(() if parts is None else parts.tables()))
    click.echo(f"report: {folder / 'report.html'}")
