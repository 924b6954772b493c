"""`gyre run`: a real run from its settings. Heavy imports are made inside the command."""

from __future__ import annotations

import sys
import warnings
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ..errors import InputError
from .common import OUT_FILE, json_option, print_tables
from .interrupt import CommandStoppedError

if TYPE_CHECKING:
    from gyre.backends.deploy.launcher import Launcher
    from gyre.backends.deploy.prepared import Prepared

    from ..report import ResultsFolder, RunResult

_EXTRA: Final = "gyre run needs packages that are not installed ({}); pip install 'gyre[run]'"
_FAILED: Final = 1  # exit code


@click.command()
@click.argument("settings_file", metavar="SETTINGS", type=OUT_FILE)
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="Folder of the run; new or empty."
)
@click.option("--resume", is_flag=True, help="Go on with the run that --out holds, or begin it.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Any setting, e.g. training.steps=6.")
@click.option("--plain", is_flag=True, help="Print a line a step, as without a terminal, in place of the live view.")
@click.option("--dry-run", is_flag=True, help="Check everything, print the settings with all defaults, and stop.")
@json_option
def run(
    settings_file: Path,
    *,
    out: Path,
    resume: bool,
    overrides: tuple[str, ...],
    plain: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Train a model on the tasks that SETTINGS, a TOML file, names: cells, harnesses, evaluator, trainer, scheduler.

    All is checked before anything starts. Ctrl-C ends the run at once and leaves it whole: the same command with
    --resume goes on, also after a crash. The folder gets journal, calls, checkpoints, logs, a report and, at the end,
    the model.
    """
    from ..report import ResultsFolder

    prepared, launcher = _prepared(settings_file, overrides, out)
    from gyre.backends.deploy.settings import OPERATIONAL

    header = prepared.settings.header()
    if dry_run:
        from ..report.settings_file import settings_toml

        click.echo(settings_toml(header), nl=False)
        return
    with ResultsFolder.create(out, header, resume=resume, free=OPERATIONAL) as folder:
        try:
            failure = _drive(prepared, launcher, folder, plain=plain, quiet=as_json)
        except InputError:
            with suppress(InputError):  # what stopped the run may stop its report too
                _report(folder)
            raise
        result = _report(folder)
    if result is not None:
        _print(result, out, as_json=as_json)
    if failure is not None:
        click.echo(f"gyre: {' '.join(failure.split())}; logs are in {out / 'logs'}; --resume goes on", err=True)
        sys.exit(_FAILED)
    if result is None or not result.summary.complete:
        raise CommandStoppedError(f"{out}: stopped; the same command with --resume goes on")


def _prepared(settings_file: Path, overrides: tuple[str, ...], out: Path) -> tuple[Prepared, Launcher]:
    """Check all that can be checked before anything starts."""
    from ..toml_file import read_toml
    from .settings import merged, nested, parse_assignment

    values: dict[str, Any] = read_toml(settings_file)
    for override in overrides:
        values = merged(values, nested(*parse_assignment(override)))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of libraries, of what else could be installed
            from gyre.backends.deploy.launcher import make_launcher
            from gyre.backends.deploy.places import Places
            from gyre.backends.deploy.prepared import prepare
            from gyre.backends.deploy.settings import DeploySettings

            prepared = prepare(DeploySettings.of(values, settings_file))
            launcher = make_launcher(prepared.settings, Places(out.absolute()))
            launcher.check()
            return prepared, launcher
    except ModuleNotFoundError as error:
        raise InputError(_EXTRA.format(error.name)) from error


def _drive(prepared: Prepared, launcher: Launcher, folder: ResultsFolder, *, plain: bool, quiet: bool) -> str | None:
    """Make the run, or what is left of it; return why it failed, None where it did not."""
    import asyncio

    from gyre.backends.deploy.deployment import OpenedRun
    from gyre.backends.deploy.follower import RunFollower
    from gyre.backends.run.driver import RunFailedError

    from ..report.folder import METRICS
    from .run_output import captured_output
    from .run_session import run_session
    from .run_view import make_view

    with ExitStack() as stack:
        screen = stack.enter_context(captured_output(folder.path / "logs"))
        view = stack.enter_context(make_view(screen, prepared.settings, plain=plain, quiet=quiet))
        follower = RunFollower(prepared.settings.watch, folder.path / METRICS, view.step, view.alert)
        stack.callback(follower.close)
        opened = OpenedRun(prepared, folder, follower)
        if opened.complete:
            return None
        try:
            asyncio.run(run_session(opened, launcher, view))
        except RunFailedError as error:
            return str(error)
    return None


def _report(folder: ResultsFolder) -> RunResult | None:
    """Write the report of what there is; None where the run has not begun."""
    from ..report import read_run

    result = read_run(folder.path)
    if not result.record.specs:
        return None
    folder.write_run(result)
    return result


def _print(result: RunResult, out: Path, *, as_json: bool) -> None:
    from ..report import compare_runs, comparison_table
    from .alerts import alerts_table

    if as_json:
        click.echo(result.summary.to_json(), nl=False)
        return
    print_tables(comparison_table(compare_runs([result])), *alerts_table([result]))
    click.echo(f"report: {out / 'report.html'}   timeline for ui.perfetto.dev: {out / 'timeline.json'}")
    if result.summary.complete:
        click.echo(f"model: {out / 'model'}")
