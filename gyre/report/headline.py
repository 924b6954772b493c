"""What stands at the head of the report: facts of the runs, and their figures as tiles or as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import PurePath
from typing import Any, Final

from .comparison import Comparison, RunResult
from .summary import Spread, Summary
from .table import ABSENT, comparison_lines, percent
from .time_unit import TimeUnit, time_unit
from .use import OVERHEAD_USES, USE_TITLES, GpuUse

_MOST_LOOSE: Final = 4  # policies whose columns leave room for wide gaps
_LONGEST_WHOLE: Final = 13  # characters of a value
_NO_BREAK_SPACE: Final = "\N{NO-BREAK SPACE}"


def title_of(results: Sequence[RunResult], settings: Mapping[str, Any]) -> str:
    """Return a report's title: policies, and the workload where the settings name one."""
    policies = list(dict.fromkeys(result.policy for result in results))
    names = policies[0] if len(policies) == 1 else f"{', '.join(policies[:-1])} and {policies[-1]}"
    workload = _setting(results, settings, "workload")
    source = workload.get("profile") or workload.get("trace") if isinstance(workload, Mapping) else None
    return f"{names} on {PurePath(source).name or source}" if isinstance(source, str) else names


def facts_html(results: Sequence[RunResult], settings: Mapping[str, Any], so_far: str = "") -> str:
    """Return what was run, in short: steps, batch, cells, seeds. `so_far` tells how far runs that go on are."""
    record, summary = results[0].record, results[0].summary
    training = _setting(results, settings, "training")
    facts = [_count(summary.steps, "step")]
    if isinstance(training, Mapping) and {"groups_per_step", "group_size"} <= training.keys():
        facts.append(f"{training['groups_per_step']} groups of {training['group_size']} executions a step")
    gpus = sorted({spec.gpus for spec in record.specs})
    each = f" of {_count(gpus[0], 'GPU')}" if len(gpus) == 1 else f", {record.gpus} GPUs"
    facts.append(_count(len(record.specs), "cell") + each)
    seeds = list(dict.fromkeys(result.summary.seed for result in results if result.summary.seed is not None))
    if seeds:
        facts.append(("seed " if len(seeds) == 1 else "seeds ") + ", ".join(map(str, seeds)))
    if so_far:
        facts.append(f'<b class="warning">{escape(so_far)}</b>')
    elif not all(result.summary.complete for result in results):
        facts.append('<b class="warning">not complete: stopped before the last step</b>')
    facts += [f'<span class="warning">{count} × {escape(name)}</span>' for name, count in _problems(results).items()]
    return "".join(f"<li>{fact}</li>" for fact in facts)


def as_of(results: Sequence[RunResult], comparison: Comparison | None) -> str:
    """Return in words how far a run, or a comparison, that goes on is."""
    if comparison is not None:
        done, planned = sum(run.complete for run in comparison.runs), len(comparison.runs) + len(comparison.missing)
        return f"the comparison goes on: as of {_count(done, 'complete run')} of {planned}"
    steps = results[0].summary.steps
    return f"the run goes on: as of step {steps}" if steps else "the run goes on: no step is done yet"


def _setting(results: Sequence[RunResult], settings: Mapping[str, Any], key: str) -> Any:
    """Return a setting of the folder, or where it has none, as in a comparison, of the first run."""
    return settings.get(key, results[0].record.settings.get(key))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _problems(results: Sequence[RunResult]) -> dict[str, int]:
    problems: dict[str, int] = {}
    for result in results:
        for name, count in result.summary.problems.items():
            problems[name] = problems.get(name, 0) + count
    return problems


def tiles_html(summary: Summary) -> str:
    """Return the figures of one run as tiles."""
    share = summary.gpu_share
    working = share[GpuUse.SERVING_BUSY] + share[GpuUse.SERVING_UNMETERED] + share[GpuUse.TRAINING]
    reason = max(summary.idle_by_reason, key=lambda use: summary.idle_by_reason[use])
    stale, lost = summary.staleness.dispatch, summary.executions
    hour_s, steps = TimeUnit.HOURS.seconds, summary.step_s
    wall_s, gpu_s = summary.wall_hours * hour_s, summary.gpu_hours * hour_s
    wall, gpu, step = time_unit([wall_s]), time_unit([gpu_s]), time_unit([steps.max], most=TimeUnit.MINUTES)
    tiles = [
        (wall.title, f"{wall.of(wall_s):.2f}", f"{gpu.of(gpu_s):,.{gpu.gpu_digits}f} GPU-{gpu.title}"),
        ("step time", _time(steps.mean, step), f"median {_time(steps.p50, step)}, 99 % {_time(steps.p99, step)}"),
        ("GPUs at work", percent(working), f"overhead {percent(sum(share[use] for use in OVERHEAD_USES))}"),
        ("GPUs idle", percent(summary.idle_share), f"most: {USE_TITLES[reason]}" if summary.idle_share > 0 else ""),
        (
            "staleness",
            _mean(stale),
            f"99 % {_g(stale.p99)}, largest {_g(stale.max)}; tokens {_mean(summary.staleness.token_mean)}",
        ),
        ("executions lost", f"{lost.lost:,}", f"of {lost.dispatched:,}; {lost.consumed:,} trained"),
    ]
    if summary.bound is not None:
        tiles.append(
            ("of the bound", percent(summary.bound.fraction), f"binds: {summary.bound.binding.replace('_', ' ')}")
        )
    return (
        '<dl class="tiles">'
        + "".join(
            f"<div><dt>{name}</dt><dd>{value}<small>{escape(more)}</small></dd></div>" for name, value, more in tiles
        )
        + "</dl>"
    )


def _time(seconds: float | None, unit: TimeUnit) -> str:
    return ABSENT if seconds is None else f"{unit.of(seconds):,.1f} {unit.symbol}"


def _mean(values: Spread) -> str:
    return ABSENT if values.mean is None else f"{values.mean:.2f}"


def _g(value: float | None) -> str:
    return ABSENT if value is None else f"{value:g}"


def _unbroken(value: str) -> str:
    """Let only a long value with words in it break into lines."""
    whole = len(value) <= _LONGEST_WHOLE or not any(letter.isalpha() for letter in value)
    return value.replace(" ", _NO_BREAK_SPACE) if whole else value


def comparison_html(comparison: Comparison) -> str:
    """Return the comparison as an HTML table with its notes."""
    heads = "".join(
        f'<th scope="col"><i class="swatch" style="background:var(--policy_{index % 4})"></i>{escape(row.policy)}</th>'
        for index, row in enumerate(comparison.policies)
    )
    body = []
    for line in comparison_lines(comparison):
        kind = " ".join(name for name, on in (("detail", line.detail), ("section", line.section)) if on)
        cells = "".join(f"<td>{escape(_unbroken(value))}</td>" for value in line.values)
        body.append(f'<tr class="{kind}"><th scope="row">{escape(line.heading)}</th>{cells}</tr>')
    dense = ' class="dense"' if len(comparison.policies) > _MOST_LOOSE else ""
    notes = "".join(f"<p>{escape(note)}</p>" for note in comparison.all_notes)
    return (
        f'<div class="table"><table{dense}><thead><tr><td></td>{heads}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
        f'<div class="notes">{notes}</div>'
    )
