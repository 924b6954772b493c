"""A whole run with two real SGLang cells and real megatron-core on CPU, as a user starts it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

for package in ("sglang", "megatron.core", "prometheus_client", "starlette", "transformers", "uvicorn"):
    pytest.importorskip(package, reason="real cells need SGLang and the extra gyre[run]")

import transformers  # noqa: E402
from run_site import Site  # noqa: E402

from gyre.cluster import CellState  # noqa: E402
from gyre.events import CellChanged, CellFailed, ExecutionLost, WeightsPublished  # noqa: E402
from gyre.journal import Header  # noqa: E402
from gyre.report import read_run  # noqa: E402
from gyre.report.journal_file import JournalReader  # noqa: E402
from gyre.trajectory.call_log import CallLog  # noqa: E402


def weights_of(folder: Path) -> dict[str, Any]:
    """Weights as transformers loads them."""
    return dict(transformers.AutoModelForCausalLM.from_pretrained(folder).state_dict())


def test_two_real_cells_roll_out_train_publish_and_serve_what_they_trained(tmp_path: Path) -> None:
    """No execution is lost to moves and publishes; what engines said of tokens is what the trainer computes."""
    training = {"steps": 2, "groups_per_step": 2, "group_size": 2, "micro_step_tokens": 1024}
    site = Site.make(tmp_path / "site", training=training, policy_settings={"phi": 0.5, "mu": 1})
    with site.start(scripted=False) as run:
        assert run.process.wait() == 0, run.said
    result = read_run(site.out)
    assert result.summary.complete
    assert result.summary.problems == {}
    assert result.summary.executions.lost == 0
    journal = [entry for entry in JournalReader(site.out / "journal.jsonl") if not isinstance(entry, Header)]
    assert not [entry for entry in journal if isinstance(entry, CellFailed | ExecutionLost)]
    trained = {entry.cell for entry in journal if isinstance(entry, CellChanged) and entry.state is CellState.TRAINING}
    assert 0 in trained
    assert [entry.version for entry in journal if isinstance(entry, WeightsPublished)] == [1]
    for step in result.record.health.steps:
        differences = [value for name, value in step.metrics.items() if name.startswith("logprob_difference_max_lag0")]
        assert all(value < 1e-4 for value in differences)
        assert step.metrics["grad_norm"] > 0
    assert any("logprob_difference_max_lag0" in step.metrics for step in result.record.health.steps)
    with CallLog(site.out / "calls" / "proxy.calls") as log:
        calls = [call for record in log.executions() for call in log.calls(record.execution)]
    versions = {int(version) for call in calls for version in call.versions}
    assert versions == {0, 1}, "engines served what was trained"
    first, served, learnt = (weights_of(site.folder / at) for at in ("model", "out/weights/version-1", "out/model"))
    assert first.keys() == served.keys() == learnt.keys()
    assert any(not first[name].equal(served[name]) for name in first)
    assert any(not served[name].equal(learnt[name]) for name in first)
