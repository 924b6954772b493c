"""What a call's record says of when it did what: enough for the simulator to be calibrated on."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

httpx = pytest.importorskip("httpx")
for package in ("aiohttp", "prometheus_client", "starlette", "transformers", "uvicorn"):
    pytest.importorskip(package, reason="the proxy needs the extra gyre[proxy]")

from proxy_bench import bench, renderer_of  # noqa: E402

from gyre.backends.engines.engine import Chunk, EngineLostError, Generation  # noqa: E402
from gyre.backends.engines.scripted import Pace, ScriptedEngine  # noqa: E402


class Breaking(ScriptedEngine):
    """Is lost after three tokens."""

    async def generate(self, generation: Generation) -> AsyncGenerator[Chunk, None]:
        sent = 0
        async for chunk in super().generate(generation):
            yield chunk
            sent += len(chunk.token_ids)
            if sent >= 3:
                raise EngineLostError("gone")


@pytest.fixture(scope="module")
def renderer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return renderer_of(tmp_path_factory.mktemp("tokenizer"))


def call(opened: Any, tokens: int, says: str = "Count.") -> None:
    answer = httpx.post(
        f"{opened.base_url}/v1/chat/completions",
        json={"model": "m", "messages": [{"role": "user", "content": says}], "max_tokens": tokens},
        headers={"Authorization": f"Bearer {opened.key}"},
        timeout=60,
    )
    assert answer.status_code == 200, answer.text


def test_times_of_a_call_follow_one_another(renderer: Any, tmp_path: Path) -> None:
    engine = ScriptedEngine("one", pace=Pace(tokens_per_s=200.0, first_token_s=0.05))
    with bench(renderer, tmp_path / "out", lambda: [engine]) as made:
        opened = made.open("x")
        call(opened, 4)
        call(opened, 4, "Count on.")
        first, second = made.records("x")
    for record in (first, second):
        (place,) = record.placements
        assert (place.engine, place.tokens) == ("one", 0)
        assert 0 <= record.start_s <= record.queued_s <= place.at_s
        assert place.at_s + 0.05 <= record.first_s <= record.end_s
        assert record.cached_tokens >= 0
    assert first.end_s <= second.start_s


def test_a_reply_that_moves_names_each_engine(renderer: Any, tmp_path: Path) -> None:
    """With the tokens that were there when it came, so that who sampled what is known."""
    with bench(renderer, tmp_path / "out", lambda: [Breaking("one"), Breaking("two")]) as made:
        call(made.open("x"), 8)
        (record,) = made.records("x")
    assert [place.tokens for place in record.placements] == [0, 3, 6]
    assert {place.engine for place in record.placements} <= {"one", "two"}
    times = [place.at_s for place in record.placements]
    assert times == sorted(times)
    assert times[0] <= record.first_s <= times[1]
    assert len(record.output_ids) == 8
