"""`gyre trace`: import, describe, fit and generate workloads. Heavy imports are made inside the commands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from ..arrays import FloatArray
    from ..workload import Report, Trace

SEED = click.IntRange(min=0)


@click.group()
def trace() -> None:
    """Import, describe, fit and generate workloads."""


@trace.command("import")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--out", type=OUT_FOLDER, required=True, help="Folder for the trace.")
@click.option("--format", "format_name", help="Format of PATH; found out by itself if not given.")
@click.option("--replace-human-waits", is_flag=True, help="Draw tool waits in place of people's pauses.")
@click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of those draws.")
@json_option
@force_option
def import_command(
    *, path: Path, out: Path, format_name: str | None, replace_human_waits: bool, seed: int, as_json: bool, force: bool
) -> None:
    """Read a recording at PATH and write it as a trace folder."""
    from ..workload.importers import check_format, import_trace

    check_format(format_name)
    refuse_existing(out, force=force)
    _existing(path)
    with working(f"importing {path}"):
        imported, report = import_trace(path, format_name)
        if replace_human_waits:
            from ..workload.human_waits import replace_human_waits as replace

            imported, replaced = replace(imported, seed=seed)
            report += replaced
    imported.write(out)
    _say_written(out, imported, report, as_json)


@trace.command()
@click.argument("source", metavar="PATH|PROFILE")
@click.option("--html", type=OUT_FILE, help="Also write a page of plots.")
@click.option("--groups", type=click.IntRange(min=1), default=200, show_default=True, help="Groups drawn of a profile.")
@click.option("--seed", type=SEED, default=0, show_default=True, help="Seed for a profile.")
@json_option
@force_option
def describe(*, source: str, html: Path | None, groups: int, seed: int, as_json: bool, force: bool) -> None:
    """Print and plot the distributions of a trace, a recording, or what a profile generates."""
    from ..workload.description import describe as describe_trace
    from ..workload.description import distributions_of, samples
    from ..workload.presentation import description_page, distribution_table, facts_table

    if html:
        check_out_file(html, force=force)
    with working(f"describing {source}"):
        described, duration_s = _trace_or_generated(source, groups=groups, seed=seed)
        description = describe_trace(described, duration_s=duration_s)
        if html:
            write_text_atomic(html, description_page(description, distributions_of(samples(described), duration_s)))
    if as_json:
        print_json(description.to_json())
    else:
        print_tables(facts_table(description), distribution_table(description))


@trace.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--name", required=True, help="Name of the new profile.")
@click.option("--out", type=OUT_FILE, required=True, help="The profile's .toml file.")
@click.option("--html", type=OUT_FILE, help="Also write a page of recorded against regenerated distributions.")
@click.option("--cells", type=click.IntRange(1, 100_000), default=8, show_default=True, help="Cells to run it on.")
@click.option("--hardware", default="qwen3.5-122b-tp8", show_default=True, help="Hardware of a cell, by name or file.")
@click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of the regenerated sample.")
@json_option
@force_option
def fit(
    *,
    path: Path,
    name: str,
    out: Path,
    html: Path | None,
    cells: int,
    hardware: str,
    seed: int,
    as_json: bool,
    force: bool,
) -> None:
    """Fit a profile to the trace or recording at PATH, and say how well it fits.

    Waits for people are first replaced by waits for tools, as for a simulation.
    """
    from ..sim.hardware_profile import load_hardware
    from ..workload.fitting import fit_profile, goodness_of_fit
    from ..workload.load import load_trace
    from ..workload.presentation import fit_page, goodness_table
    from ..workload.profiles import profile_toml

    for target in (out, html):
        if target:
            refuse_existing(target, force=force)
    _existing(path)
    load_hardware(hardware)
    with working(f"reading {path}"):
        recorded, report = load_trace(path, seed=seed)
    for line in report.lines():
        click.echo(line, err=True)
    with working(f"fitting {name}"):
        profile = fit_profile(recorded, name, cells=cells, hardware=hardware)
        goodness = goodness_of_fit(recorded, profile, seed=seed)
    write_text_atomic(out, profile_toml(profile))
    if html:
        write_text_atomic(html, fit_page(name, goodness))
    if as_json:
        print_json({"profile": str(out), **goodness.to_json()})
        return
    print_tables(goodness_table(goodness))
    click.echo(f"{out}: profile {name}")


@trace.command()
@click.argument("profile")
@click.option("--groups", type=click.IntRange(min=1), required=True, help="Groups to draw.")
@click.option("--seed", type=SEED, default=0, show_default=True)
@click.option("--out", type=OUT_FOLDER, required=True, help="Folder for the trace.")
@json_option
@force_option
def generate(*, profile: str, groups: int, seed: int, out: Path, as_json: bool, force: bool) -> None:
    """Draw a synthetic trace from PROFILE: a bundled profile's name or a .toml file."""
    from ..workload.profiles import load_profile
    from ..workload.profiles.generate import generate as generate_trace

    refuse_existing(out, force=force)
    loaded = load_profile(profile)
    with working(f"drawing {groups} groups of {loaded.name}"):
        drawn = generate_trace(loaded, groups=groups, seed=seed)
        drawn.write(out)
    _say_written(out, drawn, None, as_json)


def _trace_or_generated(source: str, *, groups: int, seed: int) -> tuple[Trace, FloatArray | None]:
    """A trace and, for a profile, nominal durations of its executions."""
    from ..workload.profiles import load_profile, profile_names
    from ..workload.profiles.generate import generate as generate_trace
    from ..workload.profiles.nominal import nominal_durations

    if source not in profile_names() and not source.endswith(".toml"):
        return _read(Path(source)), None
    profile = load_profile(source)
    drawn = generate_trace(profile, groups=groups, seed=seed)
    return drawn, nominal_durations(drawn, profile).execution_s


def _read(path: Path) -> Trace:
    """A trace folder, repaired, or an imported recording; what was found goes to stderr."""
    from ..workload.importers import import_trace

    _existing(path)
    read, report = import_trace(path)
    for line in report.lines():
        click.echo(line, err=True)
    return read


def _existing(path: Path) -> None:
    if not path.exists():
        from ..workload.profiles import profile_names

        raise InputError(f"{path}: no such file or folder, nor a bundled profile ({', '.join(profile_names())})")


def _say_written(out: Path, written: Trace, report: Report | None, as_json: bool) -> None:
    counts = {"executions": len(written.executions), "groups": len(written.groups), "calls": len(written.calls)}
    if as_json:
        print_json({"trace": str(out), **counts, "findings": report.to_json() if report else []})
        return
    for line in report.lines() if report else []:
        click.echo(line)
    click.echo(f"{out}: " + ", ".join(f"{count:,} {name}" for name, count in counts.items()))
