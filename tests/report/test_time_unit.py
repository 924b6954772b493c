"""Times are shown in the unit that reads well, one unit for all that is compared."""

from __future__ import annotations

import base64
import re
from typing import Any

import numpy as np
import pytest
from report_journal import HEADER, hand_journal
from report_toy import Toy, toy_journal

from gyre import commands as cmd
from gyre.journal import Entry, Header
from gyre.report import RunResult, compare_runs, record_run, summarize
from gyre.report.headline import tiles_html
from gyre.report.health_tables import cancelled_html, reading_html
from gyre.report.page import report_figures
from gyre.report.reading_sample import ToRead
from gyre.report.selection import Cancelled
from gyre.report.table import comparison_lines
from gyre.report.time_unit import TimeUnit, time_unit

S, MIN, H = TimeUnit


def short_run(policy: str = "elastic", wall_s: float = 50.0) -> RunResult:
    """The hand journal, told to end later or earlier."""
    entries: list[Header | Entry] = [HEADER, *hand_journal()[1:-2], cmd.StopRun(wall_s, 2)]
    record = record_run(entries)
    assert record.wall_s == wall_s
    return RunResult(record, summarize(record, policy=policy))


def long_run() -> RunResult:
    record = record_run(toy_journal(Toy(steps=2)))
    return RunResult(record, summarize(record))


def titles(runs: list[RunResult], key: str) -> str:
    (figure,) = (figure for figure in report_figures(runs, None) if figure.key == key)
    axes = [value for name, value in figure.layout.items() if re.fullmatch(r"[xy]axis\d*", name)]
    return " ".join(axis["title"]["text"] for axis in axes if "title" in axis)


def unpacked(values: dict[str, str]) -> Any:
    return np.frombuffer(base64.b64decode(values["bdata"]), "<f4")


@pytest.mark.parametrize(
    ("longest_s", "unit"),
    [
        (0.0, S),
        (1.0, S),
        (119.999, S),
        (120.0, MIN),
        (7199.999, MIN),
        (7200.0, H),
        (1e7, H),
    ],
)
def test_the_longest_time_chooses_the_unit(longest_s: float, unit: TimeUnit) -> None:
    assert time_unit([0.001, longest_s, None]) is unit


def test_the_largest_unit_can_be_held_down_and_nothing_is_seconds() -> None:
    assert time_unit([1e6], most=MIN) is MIN
    assert time_unit([119.0], most=MIN) is S
    assert time_unit([]) is S
    assert time_unit([None]) is S


def test_units_are_what_their_names_say() -> None:
    assert [(unit.title, unit.symbol, unit.of(7200.0)) for unit in TimeUnit] == [
        ("seconds", "s", 7200.0),
        ("minutes", "min", 120.0),
        ("hours", "h", 2.0),
    ]


@pytest.mark.parametrize("key", ["timeline", "levels"])
def test_a_short_run_is_drawn_in_its_own_unit_and_a_long_one_in_hours(key: str) -> None:
    assert "time since the run began, seconds" in titles([short_run()], key)
    assert "time since the run began, minutes" in titles([short_run(wall_s=150.0)], key)
    assert "time since the run began, hours" in titles([long_run()], key)


def test_the_timeline_ends_where_the_run_does() -> None:
    for run, end in ((short_run(), 50.0), (short_run(wall_s=150.0), 2.5)):
        (timeline,) = (figure for figure in report_figures([run], None) if figure.key == "timeline")
        boxes = [trace["rectangles"]["x1"] for trace in timeline.data if "rectangles" in trace]
        assert max(float(unpacked(box).max()) for box in boxes) == pytest.approx(end)
        assert timeline.layout["xaxis"]["range"] == [0, pytest.approx(end)]
        assert timeline.pointer["unit_s"] * end == pytest.approx(run.record.wall_s)


def test_lengths_steps_and_gpu_time_have_their_own_units() -> None:
    """By hand: the longest execution took 32 s, the longer step 32 s; 5 GPUs for 50 s are 4.2 GPU-minutes."""
    run = short_run()
    assert "seconds from start to end" in titles([run], "lengths")
    assert "seconds" in titles([run], "steps")
    assert "GPU-minutes" in titles([run], "usage")
    (usage,) = (figure for figure in report_figures([run], None) if figure.key == "usage")
    assert sum(trace["x"][0] for trace in usage.data) == pytest.approx(250.0 / 60.0)
    assert "minutes" in titles([long_run()], "steps"), "steps of hours stay in minutes"
    assert "GPU-hours" in titles([long_run()], "usage")


def test_tiles_of_a_short_run() -> None:
    text = tiles_html(short_run().summary)
    assert "<dt>seconds</dt><dd>50.00<small>4.2 GPU-minutes</small>" in text
    assert re.search(r"<dt>step time</dt><dd>[\d.]+ s<small>median [\d.]+ s, 99 % [\d.]+ s</small>", text)
    summary = long_run().summary
    shown = f"<dt>hours</dt><dd>{summary.wall_hours:.2f}<small>{summary.gpu_hours:,.0f} GPU-hours</small>"
    assert shown in tiles_html(summary)


def test_a_comparison_shows_one_unit_for_all_its_rows() -> None:
    runs = [short_run("a", 50.0), short_run("b", 240.0)]
    line = next(iter(comparison_lines(compare_runs(runs))))
    assert (line.heading, line.values) == ("minutes", ("0.83", "4.00"))
    (timeline,) = (figure for figure in report_figures(runs, None) if figure.key == "timeline")
    headings = [heading["text"] for heading in timeline.layout["annotations"]]
    assert headings == ["<b>a</b>  0.83 min", "<b>b</b>  4.00 min"]
    runs.append(short_run("c", 7200.0))
    line = next(iter(comparison_lines(compare_runs(runs))))
    assert (line.heading, line.values) == ("hours", ("0.01", "0.07", "2.00"))


def test_tables_of_executions_have_one_unit() -> None:
    rows = [
        Cancelled(reason=name, executions=1, groups=1, ran_s=ran_s, spared_s=None) for name, ran_s in (("x", 30.0),)
    ]
    assert "seconds that they ran" in cancelled_html(rows)
    rows.append(Cancelled(reason="y", executions=1, groups=1, ran_s=10.0, spared_s=7200.0))
    found = cancelled_html(rows)
    assert "hours that they ran" in found
    assert "<td>2.0</td>" in found

    def to_read(seconds: float | None) -> ToRead:
        return ToRead(0, "best", 1, 0, 0, 1.0, "completed", 10, 2, seconds, ())

    assert ">seconds</th>" in reading_html([to_read(6.98), to_read(None)], {})
    assert "<td>7.0</td>" in reading_html([to_read(6.98), to_read(None)], {})
    assert ">minutes</th>" in reading_html([to_read(6.98), to_read(9000.0)], {})
