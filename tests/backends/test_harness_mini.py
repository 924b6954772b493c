"""mini-swe-agent itself (chat completions, not streamed) does a task through the proxy, whatever becomes of engines."""

from __future__ import annotations

from pathlib import Path

import pytest

for package in ("aiohttp", "prometheus_client", "starlette", "transformers", "uvicorn"):
    pytest.importorskip(package, reason="the proxy needs the extra gyre[proxy]")

from harness_runs import check_unharmed, scripted_run  # noqa: E402
from harnesses import MINI  # noqa: E402
from proxy_bench import renderer_of  # noqa: E402


@pytest.mark.parametrize("troubled", [False, True], ids=["quiet", "troubled"])
def test_it_does_a_task(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, troubled: bool) -> None:
    renderer = renderer_of(tmp_path_factory.getbasetemp() / "proxy-tokenizer")
    done = scripted_run(MINI, renderer, tmp_path, troubled=troubled)
    check_unharmed(done)
    assert done.moves == (3 if troubled else 0)
