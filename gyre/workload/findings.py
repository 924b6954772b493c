"""What a check, a repair or an import found, as counted findings with row numbers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import polars as pl

from ..errors import InputError

ROWS_SHOWN = 5


class Kind(StrEnum):
    """How grave a finding is."""

    FATAL = "fatal"  # makes a simulation impossible and no rule repairs it
    REPAIRABLE = "repairable"  # breaks an invariant that a stated rule repairs
    REPAIRED = "repaired"  # was broken and has been changed by the stated rule
    SKIPPED = "skipped"  # a record of the source that could not be read and was left out
    ASSUMED = "assumed"  # a value the source does not hold, set by the stated rule
    NOTE = "note"  # legal, worth knowing


class Places(StrEnum):
    """What a finding's row numbers count."""

    TABLE_ROWS = "table rows"  # of the trace, from 0
    FILE_LINES = "file lines"  # of the source, from 1
    ENTRIES = "entries"  # of a list (requests, steps) in the source, from 0


@dataclass(frozen=True, slots=True)
class Finding:
    """One rule and how often it applied.

    `rows` are the first places, counted as `places` says.
    """

    kind: Kind
    table: str
    rule: str
    says: str
    count: int
    rows: tuple[int, ...] = ()
    example: str = ""
    places: Places = Places.TABLE_ROWS

    def line(self) -> str:
        """The finding as one line of text."""
        where = f" ({self.places} {', '.join(map(str, self.rows))}{', ...' if self.count > len(self.rows) else ''})"
        example = f"; for example {self.example}" if self.example else ""
        return f"{self.kind}: {self.table}: {self.rule} x{self.count}{where if self.rows else ''}: {self.says}{example}"

    def to_json(self) -> dict[str, object]:
        """The finding as JSON-ready values."""
        return {
            "kind": self.kind.value,
            "table": self.table,
            "rule": self.rule,
            "says": self.says,
            "count": self.count,
            "rows": list(self.rows),
            "rows_are": self.places.value,
            "example": self.example,
        }


@dataclass(frozen=True, slots=True)
class Report:
    """Findings in the order in which they were made."""

    findings: tuple[Finding, ...] = ()

    def of(self, *kinds: Kind) -> tuple[Finding, ...]:
        """Findings of the given kinds."""
        return tuple(finding for finding in self.findings if finding.kind in kinds)

    @property
    def violations(self) -> tuple[Finding, ...]:
        """Broken invariants that are still in the trace."""
        return self.of(Kind.FATAL, Kind.REPAIRABLE)

    @property
    def ok(self) -> bool:
        """True when no invariant is broken."""
        return not self.violations

    def count(self, rule: str) -> int:
        """How often a rule applied, over all tables."""
        return sum(finding.count for finding in self.findings if finding.rule == rule)

    def lines(self) -> list[str]:
        """One line of text a finding."""
        return [finding.line() for finding in self.findings]

    def to_json(self) -> list[dict[str, object]]:
        """JSON-ready findings."""
        return [finding.to_json() for finding in self.findings]

    def __add__(self, other: Report) -> Report:
        return Report(self.findings + other.findings)

    def raise_if_fatal(self, source: str) -> None:
        """Raise `InputError` in one line if a finding makes simulation impossible; `source` names the trace."""
        fatal = self.of(Kind.FATAL)
        if fatal:
            listed = "; ".join(finding.line() for finding in fatal)
            raise InputError(f"{source}: the trace cannot be simulated: {listed}; mend these rows and import it again")


def found(
    frame: pl.DataFrame,
    bad: pl.Series,
    *,
    kind: Kind,
    table: str,
    rule: str,
    says: str,
    show: Iterable[str] = (),
    lines: pl.Series | None = None,
) -> Finding | None:
    """A finding for the rows of `frame` where the Boolean `bad` holds (null counts as false), None if nowhere.

    `show` names the columns of the example, `lines` gives each row its line in the source's file.
    """
    rows = np.flatnonzero(bad.fill_null(False).to_numpy())
    if not len(rows):
        return None
    columns = [name for name in show if name in frame.columns]
    values = frame.row(int(rows[0]), named=True)
    example = ", ".join(f"{name}={values[name]}" for name in columns)
    first = rows[:ROWS_SHOWN]
    shown = first.tolist() if lines is None else lines[first.tolist()].to_list()
    places = Places.TABLE_ROWS if lines is None else Places.FILE_LINES
    return Finding(kind, table, rule, says, len(rows), tuple(shown), example, places)
