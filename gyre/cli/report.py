"""`gyre report`: draw the report of a results folder again, or of a run while it goes on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from .common import OUT_FILE, OUT_FOLDER, json_option, print_json, print_tables

if TYPE_CHECKING:
    from .report_drawing import DrawnReport, ReportRequest


@click.command()
@click.argument("folder", type=OUT_FOLDER)
@click.option("--out", type=OUT_FILE, help="Write only the page, to this HTML file, and leave FOLDER as it is.")
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
    out: Path | None,
    baseline: Path | None,
    watch_file: Path | None,
    calls: Path | None,
    calls_name: str,
    read_seed: int,
    as_json: bool,
) -> None:
    """Read the journals in FOLDER, write its summary, tables, metrics, alerts, report and timeline anew.

    Prints the figures, and the alerts. Works for simulated and real runs, and for what a stopped run left. While a run
    goes on, only report.html is written, of what its journal holds by then.
    """
    from ..errors import InputError
    from ..watch import read_watch_settings
    from .report_drawing import ReportRequest, draw_report

    if out is not None and out.suffix != ".html":
        raise InputError(f"--out {out}: is no HTML file; give a name that ends with .html")
    watch = None if watch_file is None else read_watch_settings(watch_file)
    request = ReportRequest(folder, out, watch, baseline, calls, calls_name, read_seed)
    drawn = draw_report(request)
    for line in _warnings(folder, drawn):
        click.echo(f"warning: {line}", err=True)
    if as_json:
        _print_json(drawn)
    else:
        _print(request, drawn)


def _warnings(folder: Path, drawn: DrawnReport) -> list[str]:
    """Return what is wrong with the journals, and with what else was read."""
    from ..report.folder import JOURNAL, run_folder

    lines = []
    for run in drawn.results.runs:
        if run.summary.problems:
            where = folder if drawn.results.comparison is None else run_folder(folder, run.policy, run.summary.seed)
            lines.append(f"{where / JOURNAL}: {run.summary.problems_in_words}; the figures leave that out")
    return lines + ([] if drawn.parts is None else drawn.parts.problems)


def _print_json(drawn: DrawnReport) -> None:
    results, parts = drawn.results, drawn.parts
    if parts is not None and parts.asked:
        print_json({"summary": results.runs[0].summary.model_dump(mode="json"), **parts.to_json()})
    else:
        shown = results.runs[0].summary if results.comparison is None else results.comparison
        click.echo(shown.to_json(), nl=False)


def _print(request: ReportRequest, drawn: DrawnReport) -> None:
    from ..report import compare_runs, comparison_table
    from ..report.headline import as_of
    from .alerts import alerts_table

    results, parts = drawn.results, drawn.parts
    print_tables(comparison_table(results.comparison or compare_runs(results.runs)))
    print_tables(*alerts_table(results.runs), *(() if parts is None else parts.tables()))
    if drawn.going_on:
        click.echo(f"{as_of(results.runs, results.comparison)}; its tables and summary are written when it ends")
    click.echo(f"report: {request.page}")
