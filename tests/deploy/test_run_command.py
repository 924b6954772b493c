"""`gyre run` as a user has it, with scripted engines: to the end, killed, interrupted, and taken up again."""

from __future__ import annotations

import shutil
import socket
import time
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

for package in ("aiohttp", "megatron.core", "prometheus_client", "starlette", "transformers", "uvicorn"):
    pytest.importorskip(package, reason="a real run needs the extra gyre[run]")

from run_site import Site  # noqa: E402

from gyre.backends.training.checkpoint import Checkpoints  # noqa: E402
from gyre.cli import main  # noqa: E402
from gyre.commands import OpenStep  # noqa: E402
from gyre.events import RunResumed, TransferDone, UpdateApplied  # noqa: E402
from gyre.journal import Entry, Header  # noqa: E402
from gyre.report import read_run  # noqa: E402
from gyre.report.journal_file import JournalReader  # noqa: E402
from gyre.scoring.leftovers import kill_marked, marked  # noqa: E402

pytestmark = pytest.mark.usefixtures("sglang_is_there")


def entries(out: Path) -> list[Entry]:
    return [entry for entry in JournalReader(out / "journal.jsonl") if not isinstance(entry, Header)]


def none_left(*marks: str) -> None:
    """Wait until nothing runs that bears a mark."""
    while marked(*marks):
        time.sleep(0.05)


def test_a_run_is_killed_interrupted_and_comes_to_its_end(tmp_path: Path) -> None:
    """Takes long for three starts of a real trainer in real processes; each is needed to see what the others left."""
    site = Site.make(tmp_path / "site", engine={"flags": ["--tokens-per-s=12"], "checks": {"every_s": 1.0}})
    mark = f"GYRE_RUN={site.out}"
    try:
        with site.start(scripted=True) as run:
            run.wait_for("step 1/3")
            assert len(marked(mark)) >= 4, "two engines and two trainers"
            run.process.kill()
            run.process.wait()
        if shutil.which("setpriv") is not None:
            none_left(mark)  # engines and trainers end with their driver

        refused = CliRunner().invoke(main, site.arguments("--resume", "--set", "trainer.optimizer.learning_rate=0.5"))
        assert refused.exit_code == 2
        assert "trainer.optimizer.learning_rate is 0.001 there and 0.5 here" in refused.output
        refused = CliRunner().invoke(main, site.arguments())
        assert (refused.exit_code, "--resume" in refused.output) == (2, True)

        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with site.start("--resume", "--set", f"proxy.port={port}", scripted=True) as run:
                assert run.process.wait() == 2, run.said
                assert f"127.0.0.1:{port}" in run.said
                assert "trainer is built" not in run.said, "what is cheap to see is seen first"
            assert (site.out / "report.html").exists()

        with site.start("--resume", "--set", "cells.step_s=800", scripted=True) as run:
            run.wait_for("step 2/3")
            run.interrupt()
            assert run.process.wait() == 130, run.said
            assert "--resume goes on" in run.said
        none_left(mark, f"GYRE_EXECUTIONS={site.out / 'executions'}")
        assert not read_run(site.out).summary.complete

        with site.start("--resume", scripted=True) as run:
            assert run.process.wait() == 0, run.said
            assert f"report: {site.out / 'report.html'}" in run.said
    finally:
        kill_marked(mark, f"GYRE_EXECUTIONS={site.out / 'executions'}")
    _is_whole(site)


def _is_whole(site: Site) -> None:
    out = site.out
    result = read_run(out)
    assert result.summary.complete
    assert result.summary.problems == {}
    assert result.summary.groups.consumed >= 6
    journal = entries(out)
    assert {entry.version for entry in journal if isinstance(entry, UpdateApplied)} == {1, 2, 3}
    assert sum(isinstance(entry, RunResumed) for entry in journal) == 2
    assert Counter(entry.step for entry in journal if isinstance(entry, OpenStep)).keys() == {0, 1, 2}
    steps = {entry.step for entry in journal if isinstance(entry, TransferDone)}
    assert steps >= {"drain", "release", "load", "export", "publish"}
    assert Checkpoints(out / "checkpoints").versions == [2, 3]
    assert [line.split(",")[0] for line in (out / "metrics.jsonl").read_text().splitlines()] == [
        f'{{"step":{step}' for step in range(3)
    ]
    assert all(step.metrics["grad_norm"] > 0 for step in result.record.health.steps), "something was learnt"
    assert (out / "model" / "model.safetensors").exists()
    for name in ("driver.jsonl", "engine-0.log", "engine-1.log", "trainer-1.log", "printed.log"):
        assert (out / "logs" / name).exists()
    done = CliRunner().invoke(main, site.arguments("--resume", "--json"), catch_exceptions=False)
    assert done.exit_code == 0, "a run that is complete is shown"
    assert '"complete": true' in done.output
