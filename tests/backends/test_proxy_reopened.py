"""Executions that were opened at the admin address: a proxy that is started again knows them by their keys."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

httpx = pytest.importorskip("httpx")
for package in ("aiohttp", "prometheus_client", "starlette", "transformers", "uvicorn"):
    pytest.importorskip(package, reason="the proxy needs the extra gyre[proxy]")

from proxy_bench import Bench, bench, renderer_of, saying  # noqa: E402

from gyre.backends.engines.scripted import ScriptedEngine  # noqa: E402


@pytest.fixture(scope="module")
def renderer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return renderer_of(tmp_path_factory.getbasetemp() / "proxy-tokenizer")


def proxy(renderer: Any, folder: Path) -> AbstractContextManager[Bench]:
    return bench(renderer, folder, lambda: [ScriptedEngine("one", saying(renderer, "Hello."))])


def post(made: Bench, path: str, body: dict[str, Any]) -> Any:
    return httpx.post(made.proxy.admin_url + path, json=body, timeout=20)


def ask(made: Bench, key: str, text: str = "hi", path: str = "") -> Any:
    body = {"model": "m", "messages": [{"role": "user", "content": text}]}
    url = f"{made.proxy.url}{path}/v1/chat/completions"
    return httpx.post(url, json=body, headers={"x-api-key": key}, timeout=20)


def test_an_execution_is_open_again_when_it_calls(renderer: Any, tmp_path: Path) -> None:
    told = {"id": "task-1", "group": "g", "harness": "pi", "task": "t ✓", "limits": {"steps": 3, "seconds": 500.0}}
    with proxy(renderer, tmp_path) as made:
        key = post(made, "/executions", told).json()["key"]
        assert ask(made, key).status_code == 200
        listed = made.call(made.proxy.executions)
    with proxy(renderer, tmp_path) as made:
        assert made.call(made.proxy.executions) == []
        assert ask(made, "another").status_code == 401
        assert ask(made, key, "more", "/x/task-2").status_code == 403
        assert ask(made, key, "more", "/x/task-1").status_code == 200
        (again,) = made.call(made.proxy.executions)
        assert {**again, "seconds": 0, "steps": 1, "tokens": 0} == {**listed[0], "seconds": 0, "tokens": 0}
        assert again["steps"] == 2
        assert ask(made, key, "and more").status_code == 200
        assert "limit of 3 steps" in ask(made, key, "still more").text
        assert post(made, "/executions/task-1/end", {"score": 0.5}).json()["outcome"] == "harness_timeout"
    with proxy(renderer, tmp_path) as made:
        assert ask(made, key).status_code == 401  # it has ended, as the log says
    for file in tmp_path.iterdir():
        assert key.encode() not in file.read_bytes()


def test_opening_it_again_changes_nothing(renderer: Any, tmp_path: Path) -> None:
    told = {"id": "task", "key": "mine"}
    with proxy(renderer, tmp_path) as made:
        assert post(made, "/executions", told).status_code == 201
        assert post(made, "/executions", told).status_code == 409
    with proxy(renderer, tmp_path) as made:  # before it calls, or after
        assert post(made, "/executions", told).status_code == 201
        assert ask(made, "mine").status_code == 200
    with proxy(renderer, tmp_path) as made:
        assert ask(made, "mine", "more").status_code == 200
        assert post(made, "/executions", told).status_code == 201
        assert post(made, "/executions", {**told, "key": "other"}).status_code == 409
        assert len(made.records("task")) == 2


def test_a_key_that_it_no_longer_has_is_none(renderer: Any, tmp_path: Path) -> None:
    with proxy(renderer, tmp_path) as made:
        assert post(made, "/executions", {"id": "task", "key": "first"}).status_code == 201
    with proxy(renderer, tmp_path) as made:
        assert post(made, "/executions", {"id": "task", "key": "second"}).status_code == 201
        assert ask(made, "first").status_code == 401
    with proxy(renderer, tmp_path) as made:
        assert ask(made, "first").status_code == 401
        assert ask(made, "second").status_code == 200


def test_a_line_that_was_torn_is_told_of_and_costs_no_other(
    renderer: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with proxy(renderer, tmp_path) as made:
        assert post(made, "/executions", {"id": "one", "key": "k1"}).status_code == 201
    with (tmp_path / "keys.opened").open("ab") as file:
        file.write(b'\n{"key":"ab')
    with proxy(renderer, tmp_path) as made:
        assert "keys.opened: 1 lines cannot be read" in caplog.text
        assert post(made, "/executions", {"id": "two", "key": "k2"}).status_code == 201
    with proxy(renderer, tmp_path) as made:
        assert [ask(made, key).status_code for key in ("k1", "k2")] == [200, 200]
