"""What a person, and Prometheus, see of a run."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

for package in ("torch", "megatron.core", "prometheus_client", "aiohttp"):
    pytest.importorskip(package, reason="what is shown stands beside the real parts")

from rich.console import Console  # noqa: E402

from gyre.backends.deploy.follower import RunFollower  # noqa: E402
from gyre.backends.deploy.gauges import RunGauges  # noqa: E402
from gyre.backends.proxy.metrics import Metrics  # noqa: E402
from gyre.cli.run_live import LiveView, Pace, sparkline  # noqa: E402
from gyre.cli.run_view import PlainView  # noqa: E402
from gyre.cluster import CellKind, CellSpec, CellState  # noqa: E402
from gyre.controller import Controller, ControllerSettings  # noqa: E402
from gyre.events import CellChanged, CellFailed, Event, ExecutionStarted, RunStarted  # noqa: E402
from gyre.policies import Elastic, ElasticSettings  # noqa: E402
from gyre.watch import Flow, StepFigures  # noqa: E402
from gyre.watch.clustered import Clustered  # noqa: E402
from gyre.watch.figures import SCORE, Alike  # noqa: E402

SPECS = (CellSpec(0, CellKind.CORE, 2, 1), CellSpec(1, CellKind.SATELLITE, 2, 1))
EVENTS: tuple[Event, ...] = (
    RunStarted(0.0, SPECS),
    ExecutionStarted(1.0, 0, 0),
    ExecutionStarted(1.0, 1, 0),
    CellChanged(4.0, 1, CellState.DRAINING),
    CellFailed(7.0, 1),
)


class Driven:
    """A controller and its follower after `EVENTS`; 20 seconds into the run."""

    def __init__(self, folder: Path) -> None:
        settings = ControllerSettings(3, 2, 2, keeps_until_checkpoint=True)
        self.controller = Controller(settings, Elastic(ElasticSettings(phi=0.5, mu=1)))
        self.follower = RunFollower(None, folder / "metrics.jsonl")
        for event in EVENTS:
            self.follower(event)
            for command in self.controller.handle(event):
                self.follower(command)
        self.cluster = SimpleNamespace(now_s=20.0)

    def requests(self) -> dict[int, int]:
        return {0: 17}


def step_of(number: int, reward: float) -> StepFigures:
    mean = Clustered()
    mean.add(4, 4 * reward)
    return StepFigures(
        number, 61.5, 2, 4, {SCORE: mean}, Counter(), Alike(), 0.5, 1, None, None, {"loss": 0.25}, Counter(), Flow()
    )


def shown(picture: Any) -> str:
    console = Console(file=io.StringIO(), width=100)
    console.print(picture)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_the_live_view_shows_cells_levels_and_reward(tmp_path: Path) -> None:
    driven = Driven(tmp_path)
    for number, reward in enumerate((0.25, 0.5, 1.0)):
        driven.follower.watcher.steps.append(step_of(number, reward))
    live = LiveView(Console(file=io.StringIO(), force_terminal=True), 3, "elastic")
    text = shown(live.picture(driven, driven.follower, 1234.4))  # type: ignore[arg-type]
    assert re.search(r"0 +core +serving +20 +17", text), "since the beginning"
    assert re.search(r"1 +satellite +failed +13", text)
    # phi + mu batches of two groups of two are six executions; four had begun when two cells served.
    assert "water level 6 of capacity 2: 2 waiting, 4 running; 0 groups ready" in text
    assert "elastic, step 1/3 idle   1,234 tokens/s   staleness 0.50" in text
    assert "reward ▁▃█ 1.000 (0.250 at first)" in text


def test_prometheus_reads_the_same(tmp_path: Path) -> None:
    driven, metrics = Driven(tmp_path), Metrics()
    driven.follower.watcher.steps.append(step_of(0, 0.75))
    metrics.collect_from(RunGauges(driven.controller, driven.follower))
    lines = metrics.text().decode().splitlines()
    assert "gyre_run_water_level 6.0" in lines
    assert "gyre_run_running 4.0" in lines
    assert "gyre_run_capacity 2.0" in lines
    assert 'gyre_run_cells{state="serving"} 1.0' in lines
    assert 'gyre_run_cells{state="failed"} 1.0' in lines
    assert 'gyre_run_figure{name="rollout/score"} 0.75' in lines


def test_a_plain_line_says_step_time_reward_and_staleness() -> None:
    console = Console(file=io.StringIO(), width=40)
    PlainView(console, 8).step(step_of(2, 0.5))
    PlainView(console, 8, quiet=True).step(step_of(3, 0.5))
    line = "step 3/8  61.5 s  2 groups  reward 0.500  staleness 0.50  loss 0.25\n"
    assert console.file.getvalue() == line  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("values", "bars"), [([0.0, 1.0], "▁█"), ([3.0, 3.0, 3.0], "▄▄▄"), ([-7.0, 0.0, 7.0], "▁▅█"), ([1.0], "▄")]
)
def test_a_sparkline_has_the_lowest_bar_for_the_lowest_value(values: list[float], bars: str) -> None:
    assert sparkline(values) == bars


def test_a_pace_is_that_of_the_last_ten_seconds() -> None:
    pace = Pace()
    pace.note(0.0, 0.0)
    assert pace.per_s == 0.0
    for second in range(1, 41):
        pace.note(float(second), 100.0 * second if second <= 20 else 2000.0 + 5.0 * (second - 20))
    assert pace.per_s == pytest.approx(5.0)


def test_what_libraries_and_processes_print_goes_to_a_file(tmp_path: Path) -> None:
    code = (
        "import os, pathlib, sys\n"
        "from gyre.cli.run_output import captured_output\n"
        "with captured_output(pathlib.Path(sys.argv[1])) as screen:\n"
        "    print('a warning', file=sys.stderr)\n"
        "    os.system('echo a process')\n"
        "    print('the view', file=screen)\n"
        "print('afterwards')\n"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "logs"], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("the view\nafterwards\n", "")
    assert (tmp_path / "logs" / "printed.log").read_text() == "a warning\na process\n"
