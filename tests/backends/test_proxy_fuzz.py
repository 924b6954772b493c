"""Whatever a harness sends, the proxy answers: never with a fault of its own, never with silence."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

httpx = pytest.importorskip("httpx")
for package in ("aiohttp", "prometheus_client", "starlette", "transformers", "uvicorn"):
    pytest.importorskip(package, reason="the proxy needs the extra gyre[proxy]")

from proxy_bench import Bench, bench, renderer_of, saying  # noqa: E402

from gyre.backends.engines.scripted import ScriptedEngine  # noqa: E402
from gyre.backends.proxy.limits import Bounds  # noqa: E402
from gyre.backends.proxy.settings import ProxySettings  # noqa: E402
from gyre.trajectory.check import refusal  # noqa: E402

UNBOUNDED = ProxySettings(bounds=Bounds(calls_per_s=1e6, calls_burst=1_000_000), keep_alive_s=5.0)
TOOL = {"type": "object", "properties": {"a": {"type": "string"}}}
SEEDS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "model": "m",
        "messages": [
            {"role": "system", "content": "rules"},
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
            {
                "role": "assistant",
                "content": None,
                "reasoning_content": "hm",
                "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": "b"}'}}],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "done"},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": TOOL}}],
        "tool_choice": "auto",
        "stop": ["x"],
        "max_tokens": 20,
        "stream_options": {"include_usage": True},
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": TOOL}},
    },
    "/v1/messages": {
        "model": "m",
        "max_tokens": 20,
        "system": [{"type": "text", "text": "rules", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": "hi"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "s"},
                    {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": "b"}},
                ],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "done"}]},
        ],
        "tools": [{"name": "f", "description": "d", "input_schema": TOOL}],
        "tool_choice": {"type": "auto"},
        "metadata": {"user_id": "u"},
    },
    "/v1/responses": {
        "model": "m",
        "instructions": "rules",
        "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
            {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}", "namespace": "n"},
            {"type": "function_call_output", "call_id": "c1", "output": "done"},
        ],
        "tools": [{"type": "function", "name": "f", "parameters": TOOL}, {"type": "web_search"}],
        "tool_choice": "auto",
        "max_output_tokens": 20,
    },
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    renderer = renderer_of(tmp_path_factory.getbasetemp() / "proxy-tokenizer")
    reply = '<think>\nhm\n</think>\n\nYes.<tool_call>\n{"name": "f", "arguments": {"a": "b"}}\n</tool_call>'
    engines = lambda: [ScriptedEngine("one", saying(renderer, reply))]  # noqa: E731
    with bench(renderer, tmp_path_factory.mktemp("fuzz"), engines, UNBOUNDED) as made:
        made.opened = made.open("fuzz", key="sk-fuzz")  # type: ignore[attr-defined]
        yield made
        assert all(refusal(record) is None for record in made.records("fuzz"))


@pytest.fixture(scope="module")
def http() -> Iterator[Any]:
    with httpx.Client(timeout=20) as client:
        yield client


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield at
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from places(child, (*at, key))


def mutated(body: Any, at: tuple[Any, ...], value: Any, how: str) -> Any:
    if not at:
        return value
    body = copy.deepcopy(body)
    holder = body
    for key in at[:-1]:
        holder = holder[key]
    if how == "drop":
        del holder[at[-1]]
    elif how == "twice" and isinstance(holder, list):
        holder.append(copy.deepcopy(holder[at[-1]]))
    else:
        holder[at[-1]] = value
    return body


def post(http: Any, made: Bench, path: str, content: bytes) -> Any:
    headers = {"authorization": "Bearer sk-fuzz", "content-type": "application/json"}
    answer = http.post(made.proxy.url + path, content=content, headers=headers)
    assert answer.status_code in (200, 400), (answer.status_code, answer.text, content)
    if answer.status_code == 400:
        assert answer.json()["error"]["message"]
    return answer


@settings(max_examples=250, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_mutated_bodies(running: Bench, http: Any, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(sorted(SEEDS)))
    body: Any = {**SEEDS[path], "stream": data.draw(st.booleans())}
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.sampled_from(list(places(body))))
        body = mutated(body, at, data.draw(JSON), data.draw(st.sampled_from(["drop", "twice", "set", "set"])))
        if not isinstance(body, dict | list):
            break
    post(http, running, path, json.dumps(body).encode())


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=st.sampled_from([*SEEDS, "/v1/messages/count_tokens"]), content=st.binary(max_size=40))
def test_bodies_of_any_bytes(running: Bench, http: Any, path: str, content: bytes) -> None:
    post(http, running, path, content)


@pytest.mark.parametrize("path", sorted(SEEDS))
@pytest.mark.parametrize(
    "content",
    [
        b"[" * 100_000,
        b'{"messages": ' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"messages": [{"role": "user", "content": "\\udfff"}], "input": "\\ud800", "max_tokens": 9}',
        b'{"messages": [{"role": "user", "content": "\\u0000"}], "input": "\\u0000", "max_tokens": 1e400}',
        b'{"model": "m", "max_tokens": 9, "input": "", "messages": [{"role": "user", "content": ""}]}',
    ],
)
def test_odd_bodies(running: Bench, http: Any, path: str, content: bytes) -> None:
    post(http, running, path, content)
