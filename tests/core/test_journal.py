"""The journal's lines: what is written is read back; what is no journal is refused with its line number."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gyre import commands as cmd
from gyre import events as ev
from gyre.cluster import CellKind, CellRole, CellSpec, CellState
from gyre.journal import COMMANDS, EVENTS, Header, JournalError, from_line, parse, to_line

_numbers = st.integers(0, 2**40)
_times = st.floats(0, 1e9, allow_nan=False)
_specs = st.builds(CellSpec, _numbers, st.sampled_from(CellKind), _numbers, _numbers, st.sampled_from(CellState))
_entries = st.one_of(
    st.builds(ev.RunStarted, _times, st.lists(_specs, max_size=3).map(tuple)),
    st.builds(ev.ExecutionStarted, _times, _numbers, _numbers),
    st.builds(ev.ExecutionFinished, _times, _numbers, st.text(), st.lists(st.tuples(_numbers, _numbers)).map(tuple)),
    st.builds(ev.ExecutionScored, _times, _numbers, st.booleans(), st.none() | _times, st.lists(_numbers).map(tuple)),
    st.builds(ev.CellChanged, _times, _numbers, st.sampled_from(CellState)),
    st.builds(ev.MicroStepDone, _times, _numbers, _numbers, _numbers),
    st.builds(cmd.DispatchGroup, _times, _numbers, _numbers, st.lists(_numbers).map(tuple)),
    st.builds(cmd.SwitchRole, _times, _numbers, st.sampled_from(CellRole)),
    st.builds(
        cmd.OfferMicroSteps,
        _times,
        _numbers,
        _numbers,
        _numbers,
        _numbers,
        st.lists(st.lists(_numbers).map(tuple)).map(tuple),
    ),
    st.builds(cmd.SetTimer, _times, st.text(), _times),
)


@given(_entries)
def test_entries_come_back_as_they_were(entry: ev.Event | cmd.Command) -> None:
    line = to_line(entry)
    assert "\n" not in line
    assert from_line(line, 2) == entry


def test_every_event_and_command_is_known_to_the_journal() -> None:
    assert {"RunStarted", "ExecutionLost", "Timer", "LoadReport", "TransferDone"} <= set(EVENTS)
    assert {"StopRun", "PublishWeights", "CancelExecution"} <= set(COMMANDS)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "line 2"),
        ('{"event":"NoSuch","time_s":1.0}', "NoSuch"),
        ('{"event":"CellFailed","time_s":1.0}', "cell"),
        ('{"event":"CellFailed","time_s":1.0,"cell":"0"}', "expected int"),
        ("[]", "line 2"),
        ('{"journal":1,"settings":{}}', "second header"),
    ],
)
def test_foreign_lines_are_refused_with_their_number(line: str, says: str) -> None:
    with pytest.raises(JournalError, match=says):
        list(parse([Header({}).to_line(), line]))


def test_a_journal_of_another_version_is_refused() -> None:
    with pytest.raises(JournalError, match="version 99"):
        list(parse(['{"journal":99,"settings":{}}']))
