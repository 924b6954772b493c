"""timeline.json against the rules of the Trace Event Format."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from report_toy import Toy, toy_journal

from gyre.report import RunResult, record_run, summarize
from gyre.report.trace_events import write_trace_events


@pytest.fixture(scope="module")
def runs() -> list[RunResult]:
    results = []
    for policy in ("colocate", "elastic"):
        record = record_run(toy_journal(Toy(policy=policy, steps=3, cell_failures=((4000.0, 1, 900.0),))))
        results.append(RunResult(record, summarize(record)))
    return results


@pytest.fixture(scope="module")
def events(runs: list[RunResult], tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    path: Path = tmp_path_factory.mktemp("trace") / "timeline.json"
    write_trace_events(path, runs)
    trace = json.loads(path.read_text())
    assert trace["displayTimeUnit"] in {"ms", "ns"}
    return list(trace["traceEvents"])


def test_every_event_keeps_the_rules(events: list[dict[str, Any]]) -> None:
    for event in events:
        assert event["ph"] in {"M", "X", "C", "i"}
        assert isinstance(event["name"], str)
        assert event["name"]
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        assert isinstance(event["ts"], int | float)
        assert event["ts"] >= 0
        if event["ph"] == "X":
            assert event["dur"] >= 0
        if event["ph"] == "i":
            assert event["s"] in {"g", "p", "t"}
        if event["ph"] == "C":
            assert all(isinstance(value, int | float) for value in event["args"].values())


def test_metadata_comes_first_and_names_every_track(events: list[dict[str, Any]]) -> None:
    kinds = [event["ph"] for event in events]
    count = kinds.count("M")
    assert set(kinds[:count]) == {"M"}
    named = {(event["pid"], event["tid"]) for event in events if event["name"] == "thread_name"}
    assert {(event["pid"], event["tid"]) for event in events} == named
    assert {event["args"]["name"] for event in events if event["name"] == "process_name"} == {
        "colocate, seed 0",
        "elastic, seed 0",
    }


def test_slices_of_a_track_nest(events: list[dict[str, Any]]) -> None:
    tracks: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in events:
        if event["ph"] == "X":
            tracks.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
    for spans in tracks.values():
        open_ends: list[float] = []
        for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            while open_ends and open_ends[-1] <= start + 2e-3:
                open_ends.pop()
            assert not open_ends or end <= open_ends[-1] + 2e-3
            open_ends.append(end)


def test_slices_tell_what_the_record_tells(events: list[dict[str, Any]], runs: list[RunResult]) -> None:
    for pid, run in enumerate(runs, start=1):
        mine = [event for event in events if event["pid"] == pid]
        uses = [event for event in mine if event.get("cat") == "use"]
        length_s = sum(event["dur"] for event in uses) / 1e6
        assert length_s == pytest.approx(len(run.record.specs) * run.record.wall_s, rel=1e-6)
        assert sum(event.get("cat") == "micro_step" for event in mine) == run.record.micro_steps.height
        assert sum(event.get("cat") == "update" for event in mine) == run.summary.steps
        water = [event["args"]["value"] for event in mine if event["name"] == "water level"]
        assert water == [level for level, _ in itertools.groupby(run.record.levels["water_level"].to_list())]
