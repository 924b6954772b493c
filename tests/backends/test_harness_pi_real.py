"""pi itself does a small task through the proxy on a real engine, whose outputs a grammar steers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

for package in ("aiohttp", "prometheus_client", "starlette", "transformers", "uvicorn"):
    pytest.importorskip(package, reason="the proxy needs the extra gyre[proxy]")

from harness_runs import Run, check_unharmed, run_harness, turn_of  # noqa: E402
from harnesses import PI  # noqa: E402
from proxy_bench import bench  # noqa: E402


def test_it_does_a_task_with_a_real_engine(request: pytest.FixtureRequest, tiny_model: Path, tmp_path: Path) -> None:
    """A random model says what the task needs, for a grammar leaves it only the choice of tokens."""
    PI.path()  # before a server is started for it
    server_url = request.getfixturevalue("sglang_engine").url
    import httpx
    from steered_engine import SteeredEngine

    from gyre.backends.proxy.tokens import Parsers, Renderer

    renderer = Renderer(tiny_model, parsers=Parsers(tool_calls="qwen25", reasoning="qwen3"))
    turns = PI.turns()

    def text_for(generation: Any) -> str:
        return turns[turn_of(renderer, generation, len(turns))]

    async def begun(generation: Any) -> None:
        """Abort the last reply in its middle, and let the engine go on a little later."""
        if text_for(generation) == turns[-1] and not generation.continued_tokens:
            async with httpx.AsyncClient(base_url=server_url) as server:
                (await server.post("/pause_generation", json={"mode": "abort"})).raise_for_status()
                await asyncio.sleep(0.3)
                (await server.post("/continue_generation", json={})).raise_for_status()

    engines: list[SteeredEngine] = []

    def make() -> Any:
        engines.append(SteeredEngine(server_url, renderer, text_for, begun))
        return engines

    with bench(renderer, tmp_path / "log", make) as running:
        finished = run_harness(PI, running, tmp_path)
        records = running.records("task")
    done = Run(finished, records, len(engines[0].generations) - len(records), tmp_path / "work")
    check_unharmed(done)
    assert done.moves <= 1  # 0 where the reply was whole before the engine heard of the pause
    said = [renderer.tokenizer.decode(record.output_ids.tolist(), skip_special_tokens=True) for record in records]
    assert said == turns
    own = [renderer.tokenizer.encode(text) for text in turns]
    assert all(len(ids) + 1 != len(record.output_ids) for ids, record in zip(own, records, strict=True))
