"""`gyre score`: evaluate what executions left. Heavy imports are made inside the command."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

import click

from .common import OUT_FILE, force_option, json_option, print_json, print_tables

_NOT_ALL_VALID: Final = 1
_FOLDER: Final = click.Path(path_type=Path, exists=True, file_okay=False)


@click.command()
@click.argument("folders", metavar="FOLDER...", nargs=-1, type=_FOLDER)
@click.option("--evaluator", type=OUT_FILE, required=True, metavar="FILE", help="Settings of the evaluator, TOML.")
@click.option("--each", is_flag=True, help="Each folder in FOLDER is an execution's, not FOLDER itself.")
@click.option("--out", type=OUT_FILE, help="File for the scores, .jsonl; `gyre samples build --scores` reads it.")
@click.option("--jobs", type=click.IntRange(1), help="Evaluations at a time. Default: one for each core.")
@click.option("--attempts", type=click.IntRange(1), default=3, show_default=True, help="Tries for a valid evaluation.")
@click.option(
    "--task-data",
    type=OUT_FILE,
    metavar="FILE",
    help="JSON object for all executions, or JSON lines with one for each.",
)
@click.option("--resume", is_flag=True, help="Go on with what a stopped command left beside --out.")
@json_option
@force_option
def score(
    *,
    folders: tuple[Path, ...],
    evaluator: Path,
    each: bool,
    out: Path | None,
    jobs: int | None,
    attempts: int,
    task_data: Path | None,
    resume: bool,
    as_json: bool,
    force: bool,
) -> None:
    """Evaluate what executions left in FOLDERs, each named as its execution.

    With --out, every attempt is written down beside it at once, in NAME.attempts.jsonl: what a stopped or killed
    command had evaluated is not evaluated again with --resume. The exit code is 1 where an execution got no valid
    evaluation.
    """
    from ..scoring.settings import read_evaluator_settings
    from .interrupt import interruptible
    from .score_subjects import subjects_of
    from .score_target import ScoreTarget
    from .score_work import scored

    target = ScoreTarget(out, resume=resume, force=force)
    settings = read_evaluator_settings(evaluator)
    subjects = subjects_of(folders, task_data, each=each)
    target.check()
    with interruptible() as interrupt, target.opened() as log:
        results = scored(
            subjects,
            settings,
            log,
            *(jobs or os.cpu_count() or 1, attempts),
            interrupt=interrupt,
            quiet=as_json,
        )
        if as_json:
            print_json(results.to_json())
        else:
            print_tables(results.table(), results.summary)
        for problem in results.problems:
            click.echo(f"gyre: {problem}", err=True)
        target.write(results.rows)  # last: where the disk is full, people have seen what was found
    if out is not None and not as_json:
        click.echo(f"scores: {out}; what was said at each attempt: {target.log_path}")
    if results.without_score:
        sys.exit(_NOT_ALL_VALID)
