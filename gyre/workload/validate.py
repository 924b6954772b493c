"""Checks a trace against the schema's invariants and repairs it by stated rules only."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import polars as pl

from .findings import Finding, Kind, Report, found
from .repairs import ORPHAN_TOOL, REPAIRABLE
from .rules import NOTES, STRUCTURE, Rule
from .threads import open_until, thread_table
from .trace import Trace


def validate(trace: Trace) -> Report:
    """Every broken invariant of `rules` and `repairs`, and notes, with counts and first row numbers.

    Where the structure itself is broken (ids, call indices, release graph), only that is reported: the other rules rest
    on it. A trace whose report is `ok` can be compiled.
    """
    structure = Report(tuple(_check(_structure_views(trace), STRUCTURE)))
    if structure.violations:
        return structure
    views = _views(trace)
    rules = (*REPAIRABLE, ORPHAN_TOOL)
    return Report((*_check(views, rules), *_check(views, NOTES, Kind.NOTE)))


def repair(trace: Trace) -> tuple[Trace, Report]:
    """The trace with every repairable violation repaired, and what was repaired, each counted.

    Fatal violations are left as they are and are in the report; no other value changes.
    """
    structure = Report(tuple(_check(_structure_views(trace), STRUCTURE)))
    if structure.violations:
        return trace, structure
    frames = trace.tables()
    views = _views(trace)
    findings: list[Finding] = []
    for rule in REPAIRABLE:
        finding = _find(views[rule.table], rule, Kind.REPAIRED)
        if finding is None:
            continue
        findings.append(finding)
        frames[rule.table] = _mended(views[rule.table], rule).select(frames[rule.table].columns)
        views = _views(Trace(**frames))
    orphans = _find(views["tools"], ORPHAN_TOOL, Kind.REPAIRED)
    if orphans is not None:
        findings.append(orphans)
        frames["tools"] = views["tools"].filter(~ORPHAN_TOOL.bad).select(frames["tools"].columns)
    repaired = Trace(**frames)
    return repaired, Report((*findings, *_check(_views(repaired), NOTES, Kind.NOTE)))


def read_repaired(path: Path | str) -> tuple[Trace, Report]:
    """Read a trace folder, repair it by the stated rules and say what was repaired.

    Raises:
        InputError: the folder is not a readable trace, or a violation without a repair makes simulation impossible.
    """
    trace, report = repair(Trace.read(path))
    report.raise_if_fatal(str(path))
    return trace, report


def _check(views: dict[str, pl.DataFrame], rules: Iterable[Rule], kind: Kind | None = None) -> list[Finding]:
    findings = (_find(views[rule.table], rule, kind or rule.kind) for rule in rules)
    return [finding for finding in findings if finding is not None]


def _find(view: pl.DataFrame, rule: Rule, kind: Kind) -> Finding | None:
    bad = view.select(bad=rule.bad)["bad"]
    return found(view, bad, kind=kind, table=rule.table, rule=rule.name, says=rule.says, show=rule.show)


def _mended(view: pl.DataFrame, rule: Rule) -> pl.DataFrame:
    bad = rule.bad.fill_null(False)
    return view.with_columns(
        pl.when(bad).then(value).otherwise(pl.col(name)).cast(view.schema[name]).alias(name)
        for name, value in (rule.mend or {}).items()
    )


def _structure_views(trace: Trace) -> dict[str, pl.DataFrame]:
    known_groups, known_executions = trace.groups["group_id"].implode(), trace.executions["execution_id"].implode()
    calls = _numbered(trace.calls)
    return {
        "executions": trace.executions.with_columns(group_exists=pl.col("group_id").is_in(known_groups)),
        "groups": trace.groups,
        "calls": calls.with_columns(
            execution_exists=pl.col("execution_id").is_in(known_executions),
            expected_index=pl.col("row") - pl.col("first_row"),
        ),
    }


def _views(trace: Trace) -> dict[str, pl.DataFrame]:
    """The tables with what the rules need beside each row; sound only where the structure is."""
    counted = trace.calls.group_by("execution_id").agg(
        counted_calls=pl.len().cast(pl.Int64),
        counted_input=pl.col("input_tokens").sum(),
        counted_output=pl.col("output_tokens").sum(),
    )
    executions = trace.executions.join(counted, on="execution_id", how="left", maintain_order="left")
    members = trace.executions.group_by("group_id").agg(counted_executions=pl.len().cast(pl.Int64))
    groups = trace.groups.join(members, on="group_id", how="left", maintain_order="left")
    asked = trace.calls.select("execution_id", "call_index", call_exists=pl.lit(True))
    return {
        "executions": executions.with_columns(pl.col("counted_calls", "counted_input", "counted_output").fill_null(0)),
        "groups": groups.with_columns(pl.col("counted_executions").fill_null(0)),
        "calls": _call_view(trace.calls),
        "tools": trace.tools.join(
            asked, on=["execution_id", "call_index"], how="left", maintain_order="left"
        ).with_columns(pl.col("call_exists").fill_null(False)),
    }


def _call_view(calls: pl.DataFrame) -> pl.DataFrame:
    numbered = _numbered(calls)
    threads = thread_table(numbered)
    starts = threads.select("execution", parent_thread="thread", parent_first="first_call")
    threads = threads.join(starts, on=["execution", "parent_thread"], how="left", maintain_order="left")
    parent_row = pl.when(pl.col("parent_call") >= 0).then(pl.col("first_row") + pl.col("parent_call"))
    in_reach = pl.when(pl.col("parent_row") < pl.col("row")).then(pl.col("parent_row"))
    return (
        numbered.with_columns(parent_row=parent_row)
        .with_columns(
            parent_input=pl.col("input_tokens").gather(in_reach),
            parent_context=(pl.col("input_tokens") + pl.col("output_tokens")).gather(in_reach),
        )
        .join(
            threads.select("execution", "thread", "one_parent", "parent_first", thread_first="first_call"),
            on=["execution", "thread"],
            how="left",
            maintain_order="left",
        )
        .join(
            open_until(numbered, threads),
            on=["execution", "call_index"],
            how="left",
            maintain_order="left",
        )
    )


def _numbered(calls: pl.DataFrame) -> pl.DataFrame:
    """Calls with their row, a number for the execution and the row of the execution's first call."""
    return calls.with_columns(
        row=pl.int_range(pl.len(), dtype=pl.Int64), execution=pl.col("execution_id").rle_id()
    ).with_columns(first_row=pl.col("row").first().over("execution"))
