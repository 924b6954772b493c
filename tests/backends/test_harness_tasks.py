"""Harnesses themselves do a small task through the proxy, whatever becomes of the engines.

pi speaks chat completions, streamed; mini-swe-agent the same, not streamed; codex responses, streamed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

for package in ("aiohttp", "prometheus_client", "starlette", "transformers", "uvicorn"):
    pytest.importorskip(package, reason="the proxy needs the extra gyre[proxy]")

from harness_runs import check_unharmed, scripted_run  # noqa: E402
from harnesses import CODEX, MINI, PI, Harness  # noqa: E402
from proxy_bench import renderer_of  # noqa: E402


@pytest.mark.parametrize("harness", [PI, MINI, CODEX], ids=["pi", "mini", "codex"])
@pytest.mark.parametrize("troubled", [False, True], ids=["quiet", "troubled"])
def test_it_does_a_task(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, harness: Harness, troubled: bool
) -> None:
    renderer = renderer_of(tmp_path_factory.getbasetemp() / "proxy-tokenizer")
    done = scripted_run(harness, renderer, tmp_path, troubled=troubled)
    check_unharmed(done)
    assert done.moves == (3 if troubled else 0)
