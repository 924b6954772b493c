"""Seconds of moves and publishes: nothing follows from them, and the report adds them up."""

from __future__ import annotations

from report_journal import CELLS, HEADER, hand_journal

from gyre import events as ev
from gyre.report.health_tables import transfers_html
from gyre.report.record import record_run
from gyre.report.transfer_log import transfer_times


def test_they_change_nothing_else_and_are_added_up_by_step() -> None:
    journal, plain = hand_journal(), record_run(hand_journal())
    at = next(index for index, entry in enumerate(journal) if isinstance(entry, ev.CellChanged))
    time_s = journal[at].time_s  # type: ignore[union-attr]
    journal[at:at] = [
        ev.TransferDone(time_s, 1, "drain", 0.5),
        ev.TransferDone(time_s, 0, "drain", 1.5),
        ev.TransferDone(time_s, 0, "load", 0.25),
    ]
    found = record_run(journal)
    assert found.cells.equals(plain.cells)
    assert found.steps.equals(plain.steps)
    assert found.problems == plain.problems
    times = transfer_times(found.transfers)
    assert times.rows() == [("drain", 2, 1.0, 1.5, 2.0), ("load", 1, 0.25, 0.25, 0.25)]
    assert "drain</td><td>2</td><td>1.000</td><td>1.500</td><td>2.000</td>" in transfers_html(times)
    assert transfers_html(transfer_times(plain.transfers)) == ""


def test_a_cell_that_there_is_not_is_counted() -> None:
    record = record_run([HEADER, ev.RunStarted(0.0, CELLS), ev.TransferDone(0.0, 99, "drain", 1.0)])
    assert record.problems == {"TransferDone names an unknown id": 1}
    assert record.transfers.is_empty()
