"""`gyre report`: draw the report of a results folder again."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--json", "as_json", is_flag=True, help="Print figures as JSON.")
def report(folder: Path, *, as_json: bool) -> None:
    """Read the journals in FOLDER, write its summary, tables, HTML report and timeline anew, and print the figures.

    Works for simulated and real runs, and for what a stopped run left.
    """
    from rich.console import Console

    from ..report import ResultsFolder, compare_runs, comparison_table, open_results
    from ..report.folder import JOURNAL
    from ..report.settings_file import read_settings

    with ResultsFolder.create(folder, read_settings(folder), resume=True) as target:
        results = open_results(folder)
        if results.comparison is None:
            target.write_run(results.runs[0])
        else:
            target.write_comparison(results.runs, results.comparison)
    for run in results.runs:
        if run.summary.problems:
            where = folder if results.comparison is None else target.run_path(run.policy, run.summary.seed)
            problems = run.summary.problems_in_words
            click.echo(f"warning: {where / JOURNAL}: {problems}; the figures leave that out", err=True)
    shown = results.comparison
    if as_json:
        click.echo(results.runs[0].summary.to_json() if shown is None else shown.to_json(), nl=False)
        return
    Console().print(comparison_table(compare_runs(results.runs) if shown is None else shown))
    click.echo(f"report: {folder / 'report.html'}")
