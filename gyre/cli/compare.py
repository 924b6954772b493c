"""`gyre compare`: policies side by side on one workload, at the same GPUs and the same mean staleness."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from .settings import CommonOptions, common_options, split_label, with_variant

_DEFAULT_POLICIES: Final = ("colocate", "async", "elastic")
_DEFAULT_STALENESS: Final = 1.0
_NEAR: Final = 0.1  # versions by which a mean may miss its target without a note
_INTERRUPTED: Final = 130

# Speed-ups over colocate that QwenGyre published (arXiv 2609.33848); ranges are given by their middle.
_PUBLISHED: Final[dict[str, dict[str, float]]] = {
    "nl2repo-122b": {"elastic": 1.415, "async": 0.96},
    "nl2repo-2.4t": {"elastic": 91.47 / 75.42, "async": 91.47 / 134.55},
}

_PUBLISHED_NOTE: Final = (
    "Published: QwenGyre (arXiv 2609.33848); where it gives a range, its middle. Nothing is tuned to it."
)


@click.command()
@common_options
@click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="NAME[,KEY=VALUE...]",
    help="A policy, module:Class for your own, with settings of its own (mu=1) or dotted ones (cluster.cells=7). "
    "LABEL=NAME gives it another name in tables. May be repeated; the first is the baseline.  "
    f"[default: {' '.join(_DEFAULT_POLICIES)}]",
)
@click.option(
    "--staleness",
    type=click.FloatRange(0, 1000),
    help=f"Mean scheduling staleness that every policy is set to.  [default: {_DEFAULT_STALENESS}]",
)
@click.option("--unmatched", is_flag=True, help="Keep each policy's own phi and mu instead.")
@click.option(
    "--seeds", type=click.IntRange(1), default=1, show_default=True, help="How many seeds, from the settings' own on."
)
@click.option("--jobs", type=click.IntRange(1), help="Runs at once.  [default: all cores]")
def compare(
    common: CommonOptions,
    *,
    policies: tuple[str, ...],
    staleness: float | None,
    unmatched: bool,
    seeds: int,
    jobs: int | None,
) -> None:
    """Compare scheduling policies on PROFILE (a bundled name or a file) or on --trace.

    Every policy gets the same GPUs, the same groups and, unless --unmatched, the same mean staleness. The table says
    how long each took, what its GPUs did, and how near it came to the best that any scheduler could do.
    """
    from ..errors import InputError

    if unmatched and staleness is not None:
        raise InputError("--staleness and --unmatched exclude each other: give one")
    if staleness is not None and math.isnan(staleness):
        raise InputError("--staleness nan: give a number of versions from 0 to 1000")
    base = common.base_settings()
    target = None if unmatched else (_DEFAULT_STALENESS if staleness is None else staleness)
    labels, variants = _variants(base, policies or _DEFAULT_POLICIES, target)
    plan: dict[str, Any] = {
        "staleness": target,
        "seeds": seeds,
        "variants": {label: variant.model_dump(mode="json") for label, variant in zip(labels, variants, strict=True)},
    }
    if common.dry_run:
        from ..report.settings_file import settings_toml

        click.echo(settings_toml(plan), nl=False)
        return
    _run(plan, labels, variants, common, seeds, jobs)


def _variants(base: Any, policies: Sequence[str], staleness: float | None) -> tuple[list[str], list[Any]]:
    from ..errors import InputError
    from ..sim.matched import at_staleness
    from ..sim.run import check, gpus_of

    labels, variants = [], []
    for text in policies:
        label, variant = split_label(text)
        if label in labels:
            raise InputError(f"--policy {text}: {label!r} is there twice; name one of them LABEL=NAME")
        settings = with_variant(base, variant)
        settings = (settings if staleness is None else at_staleness(settings, staleness)).resolved()
        check(settings)
        labels.append(label)
        variants.append(settings)
    budgets = {label: gpus_of(settings) for label, settings in zip(labels, variants, strict=True)}
    if len(set(budgets.values())) > 1:
        listed = ", ".join(f"{label} {gpus}" for label, gpus in budgets.items())
        raise InputError(
            f"policies must have the same GPUs to be compared, they have: {listed}; change cells or engines"
        )
    return labels, variants


def _run(
    plan: dict[str, Any], labels: list[str], variants: list[Any], common: CommonOptions, seeds: int, jobs: int | None
) -> None:
    from contextlib import ExitStack

    from ..report import ResultsFolder, compare_runs
    from .interrupt import interruptible
    from .pool import run_all
    from .tasks import Task

    with ExitStack() as stack:
        interrupt = stack.enter_context(interruptible())  # before anything is written
        folder = None
        if common.out is not None:
            folder = stack.enter_context(ResultsFolder.create(common.out, plan, resume=common.resume))
        tasks = [
            Task(
                label,
                variant.model_copy(update={"seed": seed}),
                None if folder is None else folder.run_path(label, seed),
                staleness=plan["staleness"],
            )
            for seed in range(variants[0].seed, variants[0].seed + seeds)
            for label, variant in zip(labels, variants, strict=True)
        ]
        results = run_all(tasks, interrupt, jobs=jobs, quiet=common.as_json)
        if not results:
            click.echo("gyre: stopped before a run had begun; --resume goes on", err=True)
            sys.exit(_INTERRUPTED)
        against_colocate = results[0].policy == _DEFAULT_POLICIES[0]
        published = _PUBLISHED.get(variants[0].workload.profile or "") if against_colocate else None
        notes = _notes(plan, results, len(tasks)) + ([_PUBLISHED_NOTE] if published else [])
        comparison = compare_runs(results, published=published, notes=notes)
        if folder is not None:
            folder.write_comparison(results, comparison)
    _print(comparison, common.out, common.as_json)
    if not comparison.complete or len(results) < len(tasks):
        sys.exit(_INTERRUPTED)


def _notes(plan: dict[str, Any], results: Sequence[Any], planned: int) -> list[str]:
    own = {run.policy: run.record.settings.get("policy_settings", {}) for run in results}
    asked = {label: plan["variants"][label]["policy_settings"] for label in own}
    notes = [] if plan["staleness"] is None else _staleness_notes(plan["staleness"], results, own, asked)
    notes += [
        f"{label} trains on {keys['train_cells']} of its cells, the fastest split."
        for label, keys in own.items()
        if "train_cells" in keys and "train_cells" not in asked[label]
    ]
    notes += dict.fromkeys(note for run in results for note in run.summary.extra.get("notes", ()))
    finished = sum(run.summary.complete for run in results)
    if finished < planned:
        notes.append(f"Stopped early: {finished} of {planned} runs are complete; --resume goes on.")
    return notes


def _staleness_notes(
    target: float, results: Sequence[Any], own: dict[str, dict[str, Any]], asked: dict[str, dict[str, Any]]
) -> list[str]:
    versions = "version" if target == 1 else "versions"
    notes = [f"Every policy is set to a mean scheduling staleness of {target:g} {versions}."]
    corrected = [f"{label} {keys['phi']:.2f}" for label, keys in own.items() if keys["phi"] != asked[label]["phi"]]
    if corrected:
        notes.append(f"To reach it although groups are lost, phi was corrected: {', '.join(corrected)}.")
    means = {run.policy: run.summary.staleness.dispatch.mean for run in results}
    off = [f"{label} {mean:.2f}" for label, mean in means.items() if mean is not None and abs(mean - target) > _NEAR]
    if off:
        notes.append(
            f"Over these steps the mean is another: {', '.join(off)}. The first steps are fresher, while the queue "
            "fills; more --steps bring it nearer."
        )
    return notes


def _print(comparison: Any, out: Path | None, as_json: bool) -> None:
    from rich.console import Console

    from ..report import comparison_table

    if as_json:
        click.echo(comparison.to_json(), nl=False)
        return
    Console().print(comparison_table(comparison))
    if out is not None:
        click.echo(f"report: {out / 'report.html'}   timeline for ui.perfetto.dev: {out / 'timeline.json'}")
