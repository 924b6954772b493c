"""What `gyre samples export` does: a store's executions as one step, in a trainer's fields."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import click
from rich.table import Table

from ..errors import InputError
from ..trajectory.advantages import Baseline
from ..trajectory.exchange import formats, require_options, write
from ..trajectory.execution import ExecutionRecord
from ..trajectory.making import make_samples
from ..trajectory.packing import Load, Savings, calls_load, pack_rows, pack_trees, savings
from ..trajectory.samples import Samples
from ..trajectory.selection import Selection
from ..trajectory.store import TrajectoryStore
from ..trajectory.tree import Tree, TreeCalls
from .common import print_tables
from .settings import parse_assignment

SUFFIXES = (".jsonl", ".parquet")


@dataclass(frozen=True, slots=True)
class Export:
    """Settings of an export, checked as far as they can be without reading the store's trees."""

    store: TrajectoryStore
    format_name: str
    out: Path | None
    groups: tuple[str, ...]  # empty: all
    baseline: Baseline
    options: dict[str, Any]
    token_budget: int
    selection: Selection

    @classmethod
    def of(
        cls,
        store: Path,
        format_name: str,
        out: Path | None,
        groups: tuple[str, ...],
        baseline: str,
        options: tuple[str, ...],
        token_budget: int,
        selection: Selection,
    ) -> Self:
        """Check settings as they were given.

        Raises:
            InputError: no such store, group, format, option or baseline, a group twice, or a file of another suffix.
        """
        if format_name not in formats():
            raise InputError(f"--to {format_name}: no such format; choose one of {', '.join(formats())}")
        if baseline not in list(Baseline):
            raise InputError(f"--baseline {baseline}: no such baseline; choose one of {', '.join(Baseline)}")
        if out is not None and out.suffix not in SUFFIXES:
            raise InputError(f"--out {out}: give a name that ends in {' or '.join(SUFFIXES)}")
        opened = TrajectoryStore.open(store)
        known = opened.groups()
        for group in groups:
            if group not in known:
                raise InputError(f"--group {group}: not in {store}; gyre samples inspect {store} lists its groups")
        if twice := [group for group, count in Counter(groups).items() if count > 1]:
            raise InputError(f"--group {twice[0]}: given twice; give each group once")
        assigned = dict(map(parse_assignment, options))
        require_options(format_name, assigned)
        return cls(opened, format_name, out, groups, Baseline(baseline), assigned, token_budget, selection)

    def to_json(self) -> dict[str, Any]:
        """Resolved settings as JSON-ready values."""
        mode = self.selection.mode
        chosen = self.selection.model_dump(mode="json", exclude={"mode"}, exclude_none=True)
        return {
            "store": str(self.store.path),
            "format": self.format_name,
            **({"out": str(self.out)} if self.out else {}),
            "groups": list(self.groups or self.store.groups()),
            "baseline": self.baseline.value,
            "token_budget": self.token_budget,
            "options": self.options,
            "selection": {"mode": str(mode), **chosen},
        }

    def to_toml(self) -> str:
        """Resolved settings as TOML."""
        import tomli_w

        return tomli_w.dumps(self.to_json())

    def target(self) -> Path:
        """Return the file to be written.

        Raises:
            InputError: none was given.
        """
        if self.out is None:
            raise InputError("give the file for the samples with --out, or look at the settings with --dry-run")
        return self.out

    def run(self) -> ExportReport:
        """Make the samples and write them.

        Raises:
            InputError: a tree cannot be read, nothing is trained, or the file cannot be written.
        """
        calls: dict[str, TreeCalls] = {}

        def items() -> Iterator[tuple[ExecutionRecord, Tree]]:
            groups = self.store.groups()
            names = [name for group in self.groups or groups for name in groups[group]]
            for record, tree in self.store.read_all(names):
                calls[record.execution] = tree.calls
                yield record, tree

        samples = make_samples(items(), self.selection, self.baseline)
        if not samples.rows:
            why = ", ".join(f"{count} × {reason}" for reason, count in Counter(samples.dropped.values()).items())
            raise InputError(f"{self.store.path}: nothing to train on ({why or 'no executions'})")
        used = calls_load(calls[name] for name in samples.executions.execution)
        rows = pack_rows(samples, self.token_budget, oversize="alone")
        trees = pack_trees(samples, self.token_budget, oversize="alone")
        saved = savings(rows, trees, used)
        write(samples, self.format_name, self.target(), **self.options)
        return ExportReport(self.target(), self.format_name, samples, saved)


@dataclass(frozen=True, slots=True)
class ExportReport:
    """What an export came to."""

    out: Path
    format_name: str
    samples: Samples
    saved: Savings

    def to_json(self) -> dict[str, Any]:
        """JSON-ready values."""
        samples = self.samples
        return {
            "out": str(self.out),
            "format": self.format_name,
            "samples": samples.rows,
            "executions": samples.executions.counted,
            "tokens": len(samples.tokens),
            "trained_tokens": int(samples.executions.trained_tokens.sum()),
            "dropped": samples.dropped,
            "savings": self.saved.to_json(),
        }


def print_export(report: ExportReport) -> None:
    """Print the report for people."""
    samples = report.samples
    trained = int(samples.executions.trained_tokens.sum())
    click.echo(
        f"{report.out}: {samples.rows:,} samples of {samples.executions.counted:,} executions in the fields of "
        f"{report.format_name}, {len(samples.tokens):,} tokens, {trained:,} of them trained"
    )
    for reason, count in Counter(samples.dropped.values()).most_common():
        click.echo(f"dropped: {count:,} executions, {reason}")
    flat = sum(not advantage for advantage in samples.executions.advantage.tolist())
    if flat:
        click.echo(f"advantage 0: {flat:,} executions; their group's scores are equal, or there is no other score")
    print_tables(savings_table(report.saved))


def savings_table(saved: Savings) -> Table:
    """Return what each way of laying out the step takes, against a row for each call."""
    table = Table(caption=f"micro-steps of at most {saved.token_budget:,} tokens", caption_justify="left")
    for heading in ("one forward pass over", "sequences", "tokens", "share", "attention", "micro-steps", "filled"):
        table.add_column(heading, justify="left" if heading.startswith("one") else "right")
    base = saved.calls or saved.selected
    rows: list[tuple[str, Load | None]] = [
        ("a row for each call", saved.calls),
        ("a row for each selected path", saved.selected),
        ("the same, packed", saved.rows),
        ("packed, shared prefixes once", saved.trees),
    ]
    for name, load in rows:
        if load is not None:
            table.add_row(
                name,
                f"{load.sequences:,}",
                f"{load.tokens:,}",
                _percent(load.tokens, base.tokens),
                _percent(load.attention, base.attention),
                "–" if load.micro_steps is None else f"{load.micro_steps:,}",
                "–" if load.filled is None else f"{100 * load.filled:.0f} %",
            )
    return table


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "–"
