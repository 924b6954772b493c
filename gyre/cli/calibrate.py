"""`gyre calibrate`: from a run to the hardware profile that the simulator needs."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import InputError
from .common import OUT_FILE, check_out_file, force_option, json_option, print_json, print_tables, working

if TYPE_CHECKING:
    from ..sim.calibration import Calibration, Compared


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--out", type=OUT_FILE, help="File for the profile, which --hardware of other commands takes.")
@click.option("--base", help="Profile, by name or file, with what a run does not show: KV memory, batch limits.")
@json_option
@force_option
def calibrate(*, run: Path, out: Path | None, base: str | None, as_json: bool, force: bool) -> None:
    """Measure the hardware of a finished RUN (a folder of `gyre run`), then simulate the run with it.

    Prints every figure with its standard error, and what the simulator says of the run beside what it took.
    """
    from ..sim.calibration import calibrate as measure
    from ..sim.calibration import predicted_again, to_json, write_profile
    from ..sim.hardware_profile import load_hardware

    if out is not None:
        check_out_file(out, force=force)
    with working(f"measuring {run}"):
        calibration = measure(run, None if base is None else load_hardware(base), _model(run))
    if out is not None:
        write_profile(calibration.profile, out)
    with working(f"simulating {run} again"):
        errors = predicted_again(run, calibration)
    if as_json:
        print_json(to_json(calibration, errors))
        return
    print_tables(_figures_table(calibration), _errors_table(errors))
    for note in calibration.notes:
        click.echo(note)
    click.echo(f"A reply's decode time is fitted to {calibration.engine_error:.1%} (median).")
    if out is not None:
        click.echo(f"profile: {out}   gyre compare --trace {run} --hardware {out}")


def _model(run: Path) -> dict[str, float] | None:
    """What is known of the run's model, while its folder is still there."""
    from ..workload.recorded_run.folder import RunFolder

    with RunFolder(run) as folder:
        settings = folder.history.settings
    with suppress(InputError, ImportError, KeyError, TypeError):  # without the extra gyre[real], nothing is known
        from ..backends.models.facts import facts

        said = facts(Path(settings["model"]["folder"]))
        dtype = settings["cells"].get("dtype", "float32")
        return {
            "active_parameters": float(said["active_parameters"]),
            "total_parameters": float(said["parameters"]),
            "weights_bytes": float(said["weights_bytes"][dtype]),
            "kv_bytes_per_token": float(said["kv_bytes_per_token"][dtype]),
        }
    return None


def _figures_table(calibration: Calibration) -> Any:
    from rich.table import Table

    table = Table(title=f"measured on {calibration.profile.name}")
    for name in ("figure", "value", "± standard error", "unit", "measured on"):
        table.add_column(name, justify="right" if name in ("value", "± standard error") else "left")
    for figure in calibration.figures:
        spread = "" if figure.spread is None else f"{figure.spread:.2g}"
        name = f"{figure.section}.{figure.key}" if figure.section != "details" else f"  {figure.key}"
        table.add_row(name, f"{figure.value:.4g}", spread, figure.unit, figure.source)
    return table


def _errors_table(errors: tuple[Compared, ...]) -> Any:
    from rich.table import Table

    table = Table(title="simulated again with it")
    for name in ("", "measured", "simulated", "error"):
        table.add_column(name, justify="left" if not name else "right")
    for one in errors:
        unit = f" ({one.unit})" if one.unit else ""
        table.add_row(one.name + unit, f"{one.measured:,.4g}", f"{one.simulated:,.4g}", f"{one.error:+.1%}")
    return table
