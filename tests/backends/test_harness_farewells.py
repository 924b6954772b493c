"""What harnesses do whose execution has reached a limit: each ends by itself, within a few calls, without a loop."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

for package in ("aiohttp", "prometheus_client", "starlette", "transformers", "uvicorn"):
    pytest.importorskip(package, reason="the proxy needs the extra gyre[proxy]")

from harness_runs import Trouble, TroubledEngine, odd_ids  # noqa: E402
from harnesses import CODEX, MINI, PI, Endpoint, Finished, Harness, first_of, run  # noqa: E402
from proxy_bench import bench, renderer_of  # noqa: E402
from wire_tap import wire_tap  # noqa: E402

from gyre.backends.engines.launching import free_port  # noqa: E402
from gyre.backends.engines.scripted import ScriptedEngine  # noqa: E402
from gyre.backends.proxy.limits import Limits  # noqa: E402
from gyre.trajectory import CallRecord  # noqa: E402
from gyre.trajectory.call import Finish  # noqa: E402

HARNESSES = pytest.mark.parametrize("harness", first_of(PI, MINI, CODEX))
SECONDS = 20.0  # in which a harness gets to its second turn


@pytest.fixture(scope="module")
def renderer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return renderer_of(tmp_path_factory.getbasetemp() / "proxy-tokenizer")


class Ended:
    """A run that met a limit."""

    def __init__(self, finished: Finished, records: Sequence[CallRecord], requests: int, reached: str, outcome: str):
        self.finished = finished
        self.records = records
        self.further = requests - len(records)  # requests after the last call that an engine was asked for
        self.reached = reached
        self.outcome = outcome


def limited_run(
    harness: Harness, renderer: Any, folder: Path, limits: Limits, *, named: bool = True, stuck: bool = False
) -> Ended:
    """Let a harness run into a limit; `stuck`: its second turn stops in the middle, and nothing more comes."""
    harness.path()
    turns = [odd_ids(renderer, text) for text in harness.turns()]
    trouble = Trouble([lambda engine: None, ScriptedEngine.pause] if stuck else [])
    engines = lambda: [TroubledEngine("one", renderer, turns, trouble)]  # noqa: E731
    with bench(renderer, folder / "log", engines) as running:
        opened = running.open("task", harness=harness.name if named else "", limits=limits)
        with wire_tap(running.proxy.url, free_port()) as tap:
            base_url = opened.base_url.replace(running.proxy.url, tap.url)
            finished = run(harness, folder / "home", folder / "work", Endpoint(base_url, opened.key))
            requests = sum(one.requests().count(b"POST /") for one in tap.connections)
        [listed] = running.call(running.proxy.executions)
        record = running.run(running.proxy.end_execution("task"))
        return Ended(finished, running.records("task"), requests, listed["limit_reached"], record.outcome)


@HARNESSES
@pytest.mark.parametrize("named", [True, False], ids=["named", "unnamed"])
def test_past_its_steps(renderer: Any, tmp_path: Path, harness: Harness, named: bool) -> None:
    done = limited_run(harness, renderer, tmp_path, Limits(steps=2), named=named)
    assert len(done.records) == 2
    assert done.reached == "its limit of 2 steps"
    assert done.outcome == "harness_timeout"
    assert 1 <= done.further <= 3


@HARNESSES
def test_past_its_time_in_the_middle_of_a_reply(renderer: Any, tmp_path: Path, harness: Harness) -> None:
    done = limited_run(harness, renderer, tmp_path, Limits(seconds=SECONDS), stuck=True)
    assert [record.finish for record in done.records] == [Finish.TOOL_CALLS, Finish.LENGTH]
    assert done.outcome == "harness_timeout"
    assert done.further <= 3
