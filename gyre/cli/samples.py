"""`gyre samples`: from recorded calls to training samples. Heavy imports are made inside the commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from ..atomic import write_text_atomic
from ..errors import InputError
from .common import (
    OUT_FILE,
    OUT_FOLDER,
    check_out_file,
    force_option,
    json_option,
    print_json,
    print_tables,
    refuse_existing,
    working,
)
from .selection import selection_of, selection_options

_SOURCE: Final = click.Path(path_type=Path)


@click.group()
def samples() -> None:
    """Turn recorded model calls into training samples: build a store, look into it, export it."""


@samples.command()
@click.argument("source", type=_SOURCE)
@click.option("--out", type=OUT_FOLDER, required=True, help="Folder for the store.")
@click.option("--scores", type=OUT_FILE, help="Table of execution, score and group: CSV, JSON lines or Parquet.")
@click.option("--resume", is_flag=True, help="Go on with the store that --out holds, with new calls and scores.")
@click.option("--force", is_flag=True, help="Replace the store that --out holds.")
@json_option
def build(*, source: Path, out: Path, scores: Path | None, resume: bool, force: bool, as_json: bool) -> None:
    """Build the trees of SOURCE's executions into a store.

    SOURCE is a call log (.calls), a folder of them, or a file of JSON lines. Executions of which nothing says that they
    ended are left out and named. Ctrl-C leaves a store that --resume goes on with; with --force, the old one.
    """
    from ..trajectory.scores import read_scores
    from .interrupt import interruptible
    from .store_build import Target, build_into

    target = Target(out, resume=resume, force=force)
    target.check(source)
    table = read_scores(scores) if scores else {}
    with interruptible() as interrupt:
        outcome = build_into(target, source, table, interrupt, quiet=as_json)
    if as_json:
        print_json(outcome.to_json())
    else:
        for line in outcome.lines(source):
            click.echo(line)


@samples.command(short_help="Show executions, or draw the tree of one.")
@click.argument("source", metavar="STORE|SOURCE", type=_SOURCE)
@click.argument("execution", required=False)
@click.option("--all", "every_node", is_flag=True, help="A line for every segment, short side branches too.")
@click.option("--depth", type=click.IntRange(0), help="Branches within branches to show.")
@click.option("--html", type=OUT_FILE, help="Also write the tree as a page of drawings.")
@click.option("--tokenizer", metavar="NAME|PATH", help="Show text, with this tokenizer (needs transformers).")
@selection_options
@json_option
@force_option
def inspect(
    *,
    source: Path,
    execution: str | None,
    every_node: bool,
    depth: int | None,
    html: Path | None,
    tokenizer: str | None,
    chosen: dict[str, Any],
    as_json: bool,
    force: bool,
) -> None:
    """Show the executions of a store or of recorded calls or, with EXECUTION, the tree of one.

    The tree is drawn with what a selection with these options trains.
    """
    from ..trajectory.inspection import inspection_facts, inspection_page, inspection_text
    from .store_listing import listed, listing_table, token_text_of, viewed

    selection = selection_of(chosen)
    if html:
        check_out_file(html, force=force)
    if execution is None:
        if html:
            raise InputError("--html draws one execution: name it after the source")
        with working(f"reading {source}"):
            listing = listed(source)
        if as_json:
            print_json(listing.to_json())
        else:
            print_tables(listing_table(listing.rows))
            _print_problems(listing.problems)
        return
    token_text = token_text_of(tokenizer)
    with working(f"reading {execution}"):
        view, problems = viewed(source, execution, selection)
        if html:
            write_text_atomic(html, inspection_page(view, token_text))
    if as_json:
        print_json(inspection_facts(view) | {"problems": list(problems)})
    else:
        shown = token_text if tokenizer else None
        print_tables(inspection_text(view, every_node=every_node, depth=depth, token_text=shown))
        _print_problems(problems)
        if html:
            click.echo(f"\npage: {html}")


def _print_problems(problems: tuple[str, ...]) -> None:
    for problem in problems:
        click.echo(f"\ncannot be read: {problem}")


@samples.command()
@click.argument("store", type=_SOURCE)
@click.option("--to", "format_name", required=True, metavar="FORMAT", help="Whose fields: see docs/trajectories.md.")
@click.option("--out", type=OUT_FILE, help="File for the samples, .jsonl or .parquet.")
@click.option("--group", "groups", multiple=True, help="Only this group; give it again for more. Default: all.")
@click.option(
    "--baseline", default="mean", show_default=True, metavar="mean|mean_std|leave_one_out|none", help="Of advantages."
)
@click.option("--set", "options", multiple=True, metavar="KEY=VALUE", help="An option of the format.")
@click.option("--token-budget", type=click.IntRange(1), default=131_072, show_default=True, help="Of a micro-step.")
@selection_options
@click.option("--dry-run", is_flag=True, help="Print the resolved settings and stop.")
@json_option
@force_option
def export(
    *,
    store: Path,
    format_name: str,
    out: Path | None,
    groups: tuple[str, ...],
    baseline: str,
    options: tuple[str, ...],
    token_budget: int,
    chosen: dict[str, Any],
    dry_run: bool,
    as_json: bool,
    force: bool,
) -> None:
    """Write the samples of STORE, as one step, in a trainer's fields.

    All executions of the store, or of the groups named, are the step: the loss is the mean over them.
    """
    from .sample_export import Export, print_export

    settings = Export.of(store, format_name, out, groups, baseline, options, token_budget, selection_of(chosen))
    if dry_run:
        print_json(settings.to_json()) if as_json else click.echo(settings.to_toml(), nl=False)
        return
    target = settings.target()
    refuse_existing(target, force=force)
    with working(f"exporting {store}"):
        report = settings.run()
    if as_json:
        print_json(report.to_json())
    else:
        print_export(report)
