"""Engines that fail on every request, and requests that are refused: what harnesses and logs are told."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

httpx = pytest.importorskip("httpx")
for package in ("aiohttp", "prometheus_client", "starlette", "transformers", "uvicorn"):
    pytest.importorskip(package, reason="the proxy needs the extra gyre[proxy]")

from proxy_bench import bench, renderer_of  # noqa: E402

from gyre.backends.engines.engine import Chunk, EngineLostError, Generation  # noqa: E402
from gyre.backends.engines.scripted import ScriptedEngine  # noqa: E402
from gyre.backends.proxy.settings import ProxySettings  # noqa: E402


class Failing(ScriptedEngine):
    """Healthy, and lost with every request."""

    async def generate(self, generation: Generation) -> AsyncGenerator[Chunk, None]:
        raise EngineLostError("answered 500")
        yield


@pytest.fixture(scope="module")
def renderer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return renderer_of(tmp_path_factory.mktemp("tokenizer"))


def post(opened: Any, role: str) -> Any:
    return httpx.post(
        f"{opened.base_url}/v1/chat/completions",
        json={"model": "m", "messages": [{"role": role, "content": "Count."}]},
        headers={"Authorization": f"Bearer {opened.key}"},
        timeout=60,
    )


def test_engines_that_fail_are_a_failure_to_try_again(renderer: Any, tmp_path: Path) -> None:
    settings = ProxySettings(keep_alive_s=30.0)  # nothing is sent before the failure: it has a status of its own
    with bench(renderer, tmp_path / "out", lambda: [Failing("one"), Failing("two")], settings) as made:
        answer = post(made.open("x"), "user")
        assert answer.status_code == 503
        assert "engine after engine failed" in answer.text


def test_no_value_of_a_refused_request_is_logged(
    renderer: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.DEBUG, "gyre.backends"),
        bench(renderer, tmp_path / "out", lambda: [ScriptedEngine("one")]) as made,
    ):
        assert post(made.open("x"), "my-secret-password").status_code == 400
    assert "a request is refused" in caplog.text
    assert "secret" not in caplog.text
