"""What stands at the head of the report: facts of the runs, and their figures as tiles or as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import PurePath
from typing import Any, Final

from .comparison import Comparison, RunResult
from .summary import Spread, Summary
from .table import comparison_lines, percent
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


def facts_html(results: Sequence[RunResult], settings: Mapping[str, Any]) -> str:
    """Return what was run, in short: steps, batch, cells, seeds."""
    record, summary = results[0].record, results[0].summary
    training = _setting(results, settings, "training")
    facts = [_count(summary.steps, "step")]
    if isinstance(training, Mapping) and {"groups_per_step", "group_size"} <= training.keys():
        facts.append(f"{training['groups_per_step']} groups of {training['group_size']} executions a step")
    gpus = sorted({spec.gpus for spec in record.specs})
    each = f" of {gpus[0]} GPUs" if len(gpus) == 1 else f", {record.gpus} GPUs"
    facts.append(_count(len(record.specs), "cell") + each)
    seeds = list(dict.fromkeys(result.summary.seed for result in results if result.summary.seed is not None))
    if seeds:
        facts.append(("seed " if len(seeds) == 1 else "seeds ") + ", ".join(map(str, seeds)))
    if not all(result.summary.complete for result in results):
        facts.append('<b class="warning">not complete: stopped before the last step</b>')
    facts += [f'<span class="warning">{count} × {escape(name)}</span>' for name, count in _problems(results).items()]
    return "".join(f"<li>{fact}</li>" for fact in facts)


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
    tiles = [
        ("hours", f"{summary.wall_hours:.2f}", f"{summary.gpu_hours:,.0f} GPU-hours"),
        (
            "step time",
            _minutes(summary.step_s.mean),
            f"median {_minutes(summary.step_s.p50)}, 99 % {_minutes(summary.step_s.p99)}",
        ),
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


def _minutes(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds / 60:,.1f} min"


def _mean(values: Spread) -> str:
    return "–" if values.mean is None else f"{values.mean:.2f}"


def _g(value: float | None) -> str:
    return "–" if value is None else f"{value:g}"


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
