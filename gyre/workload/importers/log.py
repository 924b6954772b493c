"""Counts what an import skipped and what it assumed."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..findings import ROWS_SHOWN, Finding, Kind, Places, Report


@dataclass(slots=True)
class _Tally:
    says: str
    count: int = 0
    rows: list[int] = field(default_factory=list)
    example: str = ""
    places: Places = Places.TABLE_ROWS


class ImportLog:
    """Collects findings of an import; each (kind, table, rule) is counted and keeps its first rows and example."""

    def __init__(self) -> None:
        self._tallies: dict[tuple[Kind, str, str], _Tally] = {}

    def skip(
        self,
        origin: str,
        rule: str,
        says: str,
        *,
        row: int | None = None,
        places: Places = Places.FILE_LINES,
        example: str = "",
    ) -> None:
        """A record of file `origin` that could not be read and is left out; `row` is its place, as `places` counts."""
        tally = self._tally(Kind.SKIPPED, origin, rule, says=says, count=1, example=example)
        tally.places = places
        if row is not None and len(tally.rows) < ROWS_SHOWN:
            tally.rows.append(row)

    def assume(self, table: str, rule: str, says: str, *, count: int = 1, example: str = "") -> None:
        """`count` values that the source does not hold and that are set by the rule that `says` states."""
        if count:
            self._tally(Kind.ASSUMED, table, rule, says=says, count=count, example=example)

    def note(self, table: str, rule: str, says: str, *, count: int = 1, example: str = "") -> None:
        """Something legal that the user should know."""
        if count:
            self._tally(Kind.NOTE, table, rule, says=says, count=count, example=example)

    def report(self) -> Report:
        """The findings so far."""
        return Report(
            tuple(
                Finding(kind, table, rule, tally.says, tally.count, tuple(tally.rows), tally.example, tally.places)
                for (kind, table, rule), tally in self._tallies.items()
            )
        )

    def _tally(self, kind: Kind, table: str, rule: str, *, says: str, count: int, example: str) -> _Tally:
        tally = self._tallies.setdefault((kind, table, rule), _Tally(says))
        tally.count += count
        tally.example = tally.example or example
        return tally
