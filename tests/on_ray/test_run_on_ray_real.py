"""`gyre run` on a local Ray: the core here, an engine and a satellite in each actor. On demand: it takes minutes."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

if not os.environ.get("GYRE_RAY_REAL"):
    pytest.skip("a whole run on Ray takes minutes; GYRE_RAY_REAL=1 makes one", allow_module_level=True)
for package in ("ray", "aiohttp", "megatron.core", "prometheus_client", "starlette", "transformers", "uvicorn"):
    pytest.importorskip(package, reason="a run on Ray needs the extras gyre[run,ray]")

sys.path.insert(0, str(Path(__file__).parents[1] / "deploy"))
from run_site import Site  # noqa: E402

from gyre.events import TransferDone, UpdateApplied  # noqa: E402
from gyre.journal import Header  # noqa: E402
from gyre.report import read_run  # noqa: E402
from gyre.report.journal_file import JournalReader  # noqa: E402


@pytest.fixture
def ray_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    folder = tempfile.mkdtemp(prefix="gyre-ray-")  # one of pytest's own would be too long for Ray's sockets
    monkeypatch.setenv("RAY_TMPDIR", folder)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    yield
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.usefixtures("ray_folder")
@pytest.mark.parametrize("scripted", [True, False])
def test_a_run_on_ray_trains_on_both_cells(tmp_path: Path, scripted: bool) -> None:
    site = Site.make(
        tmp_path / "site",
        policy="colocate",  # with it every cell trains in every step
        policy_settings={},
        launch={"kind": "ray", "ray": {"address": "local", "cpus": 1, "place_s": 300}},
        engine={"flags": ["--tokens-per-s=50"] if scripted else [], "checks": {"every_s": 1.0}},
    )
    with site.start("--plain", scripted=scripted) as run:
        assert run.process.wait() == 0, run.said
    result = read_run(site.out)
    assert result.summary.complete
    assert result.summary.problems == {}
    journal = [entry for entry in JournalReader(site.out / "journal.jsonl") if not isinstance(entry, Header)]
    assert {entry.version for entry in journal if isinstance(entry, UpdateApplied)} == {1, 2, 3}
    steps = {(entry.cell, entry.step) for entry in journal if isinstance(entry, TransferDone)}
    assert steps >= {(cell, step) for cell in range(2) for step in ("drain", "load", "offload", "admit")}
    for name in ("engine-0.log", "engine-1.log", "trainer-1.log"):
        assert (site.out / "logs" / name).exists()
