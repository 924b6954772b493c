"""claude-code, qwen-code and opencode do the small task, each in a few seconds, where they are installed."""

from __future__ import annotations

from pathlib import Path

import pytest

for package in ("aiohttp", "prometheus_client", "starlette", "transformers", "uvicorn"):
    pytest.importorskip(package, reason="the proxy needs the extra gyre[proxy]")

from harness_runs import Run, check_unharmed  # noqa: E402
from harness_site import site  # noqa: E402
from harnesses import CLAUDE, OPENCODE, QWEN, Harness, only_on_demand  # noqa: E402

from gyre.role import Role  # noqa: E402


@only_on_demand
@pytest.mark.parametrize("harness", [CLAUDE, QWEN, OPENCODE], ids=["claude", "qwen", "opencode"])
def test_it_does_a_task(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, harness: Harness) -> None:
    """One conversation, without a fork; opencode asks for a title besides, which is no part of it."""
    tokenizer = tmp_path_factory.getbasetemp() / "proxy-tokenizer"
    with site(harness, tmp_path / "site", tokenizer) as place:
        finished = place.start_harness().result()
        every = place.records()
        side = [record for record in every if record.role is Role.SIDE]
        task = [record for record in every if record.role is not Role.SIDE]
        assert len(side) == (1 if harness is OPENCODE else 0)
        assert {record.role for record in task} == {None}
        assert [record.output_ids.tolist() for record in task] == place.turns
        check_unharmed(Run(finished, task, 0, place.folder / "work"))
