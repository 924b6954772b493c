"""The proxy as harnesses meet it: real clients, real sockets, engines that say what a script says."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

anthropic = pytest.importorskip("anthropic", reason="a real client of the messages protocol")
httpx = pytest.importorskip("httpx")
openai = pytest.importorskip("openai", reason="a real client of the chat and responses protocols")
for package in ("aiohttp", "prometheus_client", "starlette", "transformers", "uvicorn"):
    pytest.importorskip(package, reason="the proxy needs the extra gyre[proxy]")

from proxy_bench import Bench, bench, renderer_of, saying  # noqa: E402

from gyre.backends.engines.engine import EngineInfo  # noqa: E402
from gyre.backends.engines.scripted import Pace, ScriptedEngine  # noqa: E402
from gyre.backends.proxy.limits import Bounds, Limits  # noqa: E402
from gyre.backends.proxy.settings import ProxySettings  # noqa: E402
from gyre.errors import InputError  # noqa: E402
from gyre.role import Role  # noqa: E402
from gyre.trajectory.call import Finish  # noqa: E402
from gyre.trajectory.call_log import CallLog  # noqa: E402
from gyre.trajectory.check import refusal  # noqa: E402

SMALL = EngineInfo("scripted", kv_tokens=1 << 16, max_running=64, max_context_tokens=2048, version=3)
CALLING = 'I look.\n<tool_call>\n{"name": "bash", "arguments": {"command":  "ls -la"}}\n</tool_call>'
BASH = {
    "name": "bash",
    "description": "Runs a command.",
    "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
}
QUESTION = [{"role": "user", "content": "What is there?"}]


@pytest.fixture(scope="session")
def renderer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return renderer_of(tmp_path_factory.getbasetemp() / "proxy-tokenizer")


@pytest.fixture
def running(renderer: Any, tmp_path: Path) -> Iterator[Bench]:
    script = saying(renderer, lambda prompt: CALLING if "Runs a command" in prompt else "Nothing, it seems.")
    with bench(renderer, tmp_path / "out", lambda: [ScriptedEngine("one", script, info=SMALL)]) as made:
        yield made


def clients(opened: Any) -> tuple[Any, Any]:
    return (
        openai.OpenAI(base_url=f"{opened.base_url}/v1", api_key=opened.key, max_retries=0, timeout=20),
        anthropic.Anthropic(base_url=opened.base_url, api_key=opened.key, max_retries=0, timeout=20),
    )


def test_every_protocol_streamed_and_not(running: Bench) -> None:
    opened = running.open("all", harness="pi")
    chat, messages = clients(opened)
    tool = {"type": "function", "function": BASH}
    found = []

    plain = chat.chat.completions.create(model="m", messages=QUESTION, tools=[tool]).choices[0]
    found.append((plain.message.content, plain.message.tool_calls[0].function.arguments, plain.finish_reason))
    parts = list(chat.chat.completions.create(model="m", messages=[*QUESTION, *QUESTION], tools=[tool], stream=True))
    text = "".join(part.choices[0].delta.content or "" for part in parts)
    calls = [call for part in parts for call in part.choices[0].delta.tool_calls or []]
    arguments = "".join(call.function.arguments for call in calls)
    found.append((text, arguments, parts[-1].choices[0].finish_reason))

    claude_tool = {"name": "bash", "description": BASH["description"], "input_schema": BASH["parameters"]}
    asked = {"model": "m", "max_tokens": 900, "messages": QUESTION, "tools": [claude_tool]}
    whole = messages.messages.create(**asked)
    found.append((whole.content[0].text, json.dumps(whole.content[1].input), whole.stop_reason))
    with messages.messages.stream(**{**asked, "max_tokens": 901}) as stream:
        final = stream.get_final_message()
    found.append((final.content[0].text, json.dumps(final.content[1].input), final.stop_reason))

    flat = {"type": "function", "strict": False, **BASH}
    answered = chat.responses.create(model="m", input="What is there?", tools=[flat])
    found.append((answered.output_text, answered.output[-1].arguments, answered.status))
    last = list(chat.responses.create(model="m", input="What then?", tools=[flat], stream=True))[-1].response
    found.append((last.output_text, last.output[-1].arguments, last.status))

    assert [text for text, _, _ in found] == ["I look."] * 6
    assert all(json.loads(arguments) == {"command": "ls -la"} for _, arguments, _ in found)
    assert [end for _, _, end in found] == ["tool_calls"] * 2 + ["tool_use"] * 2 + ["completed"] * 2
    records = running.records("all")
    assert [record.sequence for record in records] == list(range(6))
    assert all(refusal(record) is None and record.finish is Finish.TOOL_CALLS for record in records)
    assert all(record.harness == "pi" and set(record.versions) == {3} for record in records)
    assert all(0 <= record.start_s <= record.end_s for record in records)
    for record in records:
        shown = running.renderer.tokenizer.decode(record.output_ids.tolist())
        assert shown == CALLING + "<|im_end|>"


def test_a_conversation_keeps_its_tokens(running: Bench) -> None:
    opened = running.open("tito")
    chat, _ = clients(opened)
    tool = {"type": "function", "function": BASH}
    said: list[Any] = list(QUESTION)
    for _ in range(3):
        message = chat.chat.completions.create(model="m", messages=said, tools=[tool]).choices[0].message
        call = message.tool_calls[0]
        rewritten = json.dumps(json.loads(call.function.arguments))  # as most harnesses do
        function = {"name": call.function.name, "arguments": rewritten}
        said.append(
            {
                "role": "assistant",
                "content": message.content,
                "tool_calls": [{"id": call.id, "type": "function", "function": function}],
            }
        )
        said.append({"role": "tool", "tool_call_id": call.id, "content": "two files"})
    first, second, third = running.records("tito")
    for earlier, later in ((first, second), (second, third)):
        context = np.concatenate((earlier.input_ids, earlier.output_ids))
        np.testing.assert_array_equal(later.input_ids[: len(context)], context)


def test_a_key_opens_its_own_execution_and_no_other(running: Bench) -> None:
    mine, other = running.open("mine"), running.open("other")
    body = {"model": "m", "messages": QUESTION}

    def status(url: str, headers: dict[str, str], path: str = "/v1/chat/completions") -> int:
        return int(httpx.post(url + path, json=body, headers=headers, timeout=20).status_code)

    assert status(mine.base_url, {"authorization": f"Bearer {mine.key}"}) == 200
    assert status(mine.base_url, {"x-api-key": mine.key}) == 200
    assert status(running.proxy.url, {"authorization": f"Bearer {mine.key}"}) == 200
    assert status(mine.base_url, {"authorization": f"Bearer {other.key}"}) == 403
    assert status(mine.base_url, {"authorization": "Bearer wrong"}) == 401
    assert status(mine.base_url, {}) == 401
    assert status(f"{running.proxy.url}/x/none", {"authorization": f"Bearer {mine.key}"}) == 403
    running.run(running.proxy.end_execution("mine", score=0.5))
    assert status(mine.base_url, {"authorization": f"Bearer {mine.key}"}) == 403
    with pytest.raises(InputError, match="has ended"):
        running.open("mine")
    with CallLog(running.proxy.log_path) as log:
        assert [(record.execution, record.score, record.outcome) for record in log.executions()] == [
            ("mine", 0.5, "completed")
        ]
        assert log.call_count("mine") == 1  # the second and third asked the same again
        assert log.call_count("other") == 0


def test_refusals_come_in_the_protocols_own_words(running: Bench) -> None:
    opened = running.open("words")
    chat, messages = clients(opened)
    with pytest.raises(openai.BadRequestError, match="messages"):
        chat.chat.completions.create(model="m", messages=[])
    with pytest.raises(openai.BadRequestError, match="maximum context length is"):
        chat.chat.completions.create(model="m", messages=[{"role": "user", "content": "many words " * 2000}])
    with pytest.raises(anthropic.BadRequestError, match=r"prompt is too long: \d+ tokens > \d+ maximum"):
        messages.messages.create(model="m", max_tokens=5, messages=[{"role": "user", "content": "many words " * 2000}])
    wrong = anthropic.Anthropic(base_url=opened.base_url, api_key="wrong", max_retries=0)
    with pytest.raises(anthropic.AuthenticationError):
        wrong.messages.create(model="m", max_tokens=5, messages=QUESTION)
    assert running.records("words") == []


def test_what_else_harnesses_ask(running: Bench) -> None:
    opened = running.open("else")
    chat, messages = clients(opened)
    assert [model.id for model in chat.models.list()] == ["gyre-policy"]
    assert [model.id for model in messages.models.list()] == ["gyre-policy"]
    asked = messages.messages.count_tokens(model="m", messages=QUESTION).input_tokens
    assert asked == messages.messages.create(model="m", max_tokens=50, messages=QUESTION).usage.input_tokens
    assert httpx.head(opened.base_url).status_code == 200
    assert httpx.get(f"{running.proxy.url}/api/hello").status_code == 200
    upgrade = {"connection": "Upgrade", "upgrade": "websocket", "authorization": f"Bearer {opened.key}"}
    assert httpx.get(f"{opened.base_url}/v1/responses", headers=upgrade).status_code == 426
    assert httpx.get(f"{opened.base_url}/v1/chat/completions").status_code == 405
    beta = httpx.post(
        f"{opened.base_url}/v1/messages?beta=true",
        headers={"x-api-key": opened.key, "anthropic-version": "2023-06-01"},
        json={"model": "m", "max_tokens": 9, "messages": QUESTION},
        timeout=20,
    )
    assert beta.status_code == 200


def test_token_ids_for_harnesses_that_ask(running: Bench) -> None:
    chat, _ = clients(running.open("ids"))
    done = chat.chat.completions.create(model="m", messages=QUESTION, extra_body={"return_token_ids": True})
    (record,) = running.records("ids")
    assert done.model_extra["prompt_token_ids"] == record.input_ids.tolist()
    assert done.choices[0].model_extra["token_ids"] == record.output_ids.tolist()


def test_bounds(renderer: Any, tmp_path: Path) -> None:
    bounds = Bounds(body_bytes=4000, calls_per_s=0.001, calls_burst=6, calls_at_once=2, executions=2)
    slow = Pace(tokens_per_s=10.0)
    settings = ProxySettings(bounds=bounds, linger_s=0.0)
    engines = lambda: [ScriptedEngine("slow", saying(renderer, "A long reply, " * 20), pace=slow)]  # noqa: E731
    with bench(renderer, tmp_path / "out", engines, settings) as made:
        opened, other = made.open("bounded"), made.open("other")
        with pytest.raises(InputError, match="as many as may be"):
            made.open("third")
        url, headers = f"{opened.base_url}/v1/chat/completions", {"authorization": f"Bearer {opened.key}"}

        def asking(text: str) -> dict[str, Any]:
            return {"model": "m", "stream": True, "messages": [{"role": "user", "content": text}]}

        assert httpx.post(url, headers=headers, json=asking("x" * 5000)).status_code == 413
        pieces = (b"x" * 1000 for _ in range(10))
        assert httpx.post(url, headers=headers, content=pieces).status_code == 413
        with (
            httpx.stream("POST", url, headers=headers, json=asking("a")) as one,
            httpx.stream("POST", url, headers=headers, json=asking("b")) as two,
        ):
            third = httpx.post(url, headers=headers, json=asking("c"))
            assert (one.status_code, two.status_code, third.status_code) == (200, 200, 429)
            assert third.headers["retry-after"] == "20"
        assert httpx.post(url, headers=headers, json={}).status_code == 400
        often = httpx.post(url, headers=headers, json={})
        assert (often.status_code, often.headers["retry-after"]) == (429, "20")
        elsewhere = {"authorization": f"Bearer {other.key}"}
        assert httpx.post(f"{other.base_url}/v1/messages", headers=elsewhere, json={}).status_code == 400


def test_past_a_limit_harnesses_are_told_to_stop_first_in_words_then_by_errors(running: Bench) -> None:
    opened = running.open("limited", limits=Limits(steps=2))
    chat, messages = clients(opened)
    for number in range(2):
        chat.chat.completions.create(model="m", messages=[{"role": "user", "content": f"step {number}"}])
    told = chat.chat.completions.create(model="m", messages=[{"role": "user", "content": "more"}]).choices[0]
    assert "limit of 2 steps" in told.message.content
    assert (told.finish_reason, told.message.tool_calls) == ("stop", None)
    with messages.messages.stream(model="m", max_tokens=9, messages=QUESTION) as stream:
        assert stream.get_final_message().stop_reason == "end_turn"
    chat.responses.create(model="m", input="and more")
    with pytest.raises(openai.PermissionDeniedError, match="limit of 2 steps"):
        chat.chat.completions.create(model="m", messages=[{"role": "user", "content": "and more"}])
    assert running.run(running.proxy.end_execution("limited")).outcome == "harness_timeout"
    assert len(running.records("limited")) == 2

    chat, _ = clients(running.open("smol", harness="smolagents", limits=Limits(steps=1)))
    chat.chat.completions.create(model="m", messages=QUESTION)
    with pytest.raises(openai.PermissionDeniedError):
        chat.chat.completions.create(model="m", messages=[{"role": "user", "content": "more"}])


def test_a_token_limit_cuts_the_reply_that_meets_it(running: Bench) -> None:
    tokens = len(running.renderer.ids("Nothing, it seems.")) + 1
    prompt = 2 * clients(running.open("free"))[1].messages.count_tokens(model="m", messages=QUESTION).input_tokens
    chat, _ = clients(running.open("tokens", limits=Limits(tokens=prompt + 2 * tokens - 2)))
    ends = [
        chat.chat.completions.create(model="m", messages=QUESTION, temperature=heat).choices[0].finish_reason
        for heat in (0.1, 0.2, 0.3)
    ]
    assert ends == ["stop", "length", "stop"]
    records = running.records("tokens")
    assert [(len(record.output_ids), record.finish) for record in records] == [
        (tokens, Finish.STOP),
        (tokens - 2, Finish.LENGTH),
    ]


def test_a_time_limit_ends_a_reply_and_keeps_what_there_is_of_it(renderer: Any, tmp_path: Path) -> None:
    engines = lambda: [ScriptedEngine("slow", saying(renderer, "word " * 500), pace=Pace(tokens_per_s=40.0))]  # noqa: E731
    with bench(renderer, tmp_path / "out", engines) as made:
        chat, _ = clients(made.open("timed", limits=Limits(seconds=1.0)))
        done = chat.chat.completions.create(model="m", messages=QUESTION)
        assert done.choices[0].finish_reason == "length"
        (record,) = made.records("timed")
        assert (record.finish, record.delivered) == (Finish.LENGTH, True)
        assert len(record.output_ids) == done.usage.completion_tokens > 0
        again = chat.chat.completions.create(model="m", messages=[{"role": "user", "content": "more"}])
        assert "limit of 1 seconds" in again.choices[0].message.content


def test_labels_reach_the_record(running: Bench) -> None:
    opened = running.open("labels", harness="claude-code")
    _, messages = clients(opened)
    asked = {"model": "m", "max_tokens": 9}
    messages.messages.create(**asked, messages=QUESTION)
    agent = {"x-claude-code-agent-id": "a1"}
    messages.messages.create(**asked, messages=QUESTION, extra_headers=agent)
    messages.messages.create(**asked, messages=[{"role": "user", "content": "Respond with TEXT ONLY. Summarise."}])
    main, sub, summary = running.records("labels")
    assert (main.role, main.thread) == (None, "")
    assert (sub.role, sub.thread) == (Role.SUB_AGENT, "a1")
    assert summary.role is Role.MAIN_SUMMARY


def test_keep_alives_while_there_is_no_engine(renderer: Any, tmp_path: Path) -> None:
    settings = ProxySettings(keep_alive_s=0.1, linger_s=0.1)
    with bench(renderer, tmp_path / "out", list, settings) as made:
        opened = made.open("waiting")
        headers = {"authorization": f"Bearer {opened.key}"}
        marks = {
            "/v1/chat/completions": ({"messages": QUESTION}, b'"delta":{}'),
            "/v1/messages": ({"messages": QUESTION, "max_tokens": 9}, b"event: ping"),
            "/v1/responses": ({"input": "hi"}, b"event: response.in_progress"),
        }
        for path, (body, mark) in marks.items():
            with httpx.stream(
                "POST", opened.base_url + path, headers=headers, json={**body, "model": "m", "stream": True}, timeout=20
            ) as reply:
                seen = b""
                for part in reply.iter_raw():
                    seen += part
                    if seen.count(mark) >= 3:
                        break
        body = {"model": "m", "messages": [{"role": "user", "content": "plain"}]}
        url = opened.base_url + "/v1/chat/completions"
        with httpx.stream("POST", url, headers=headers, json=body, timeout=20) as reply:
            assert reply.status_code == 200
            raw = reply.iter_raw()
            assert {next(raw), next(raw)} == {b" "}
            engine = made.call(ScriptedEngine, "late", saying(renderer, "Here I am."))
            made.call(made.proxy.pool.add, engine)
            assert json.loads(b"".join(raw))["choices"][0]["message"]["content"] == "Here I am."


def test_the_admin_side(running: Bench) -> None:
    admin = running.proxy.admin_url
    made = httpx.post(f"{admin}/executions", json={"id": "run-1", "group": "g", "limits": {"steps": 5}})
    assert made.status_code == 201
    opened = made.json()
    chat = openai.OpenAI(base_url=f"{opened['base_url']}/v1", api_key=opened["key"], max_retries=0)
    chat.chat.completions.create(model="m", messages=QUESTION)
    (listed,) = httpx.get(f"{admin}/executions").json()["executions"]
    assert (listed["id"], listed["steps"], listed["running"]) == ("run-1", 1, 0)
    assert httpx.post(f"{admin}/executions", json={"id": "run-1"}).status_code == 409
    assert httpx.post(f"{admin}/executions", json={"id": "../etc"}).status_code == 400
    assert httpx.post(f"{admin}/executions", json={"steps": 5}).status_code == 400
    for bad in ({"group": "g" * 1001}, {"task": "t" * 1001}, {"key": "two words"}, {"key": "\u00fc"}, {"id": "a\n"}):
        assert httpx.post(f"{admin}/executions", json=bad).status_code == 400
    assert httpx.post(f"{admin}/executions", content=b"{").status_code == 400
    ended = httpx.post(f"{admin}/executions/run-1/end", json={"score": 1.0, "outcome": "agent_error"})
    assert ended.json() == {"id": "run-1", "score": 1.0, "outcome": "agent_error"}
    assert httpx.post(f"{admin}/executions/run-1/end").status_code == 409
    text = httpx.get(f"{admin}/metrics").text
    assert 'gyre_proxy_requests_total{protocol="chat",status="200"} 1.0' in text
    assert 'gyre_proxy_calls_total{state="delivered"}' in text or 'gyre_proxy_calls_total{state="recorded"} 1.0' in text
    assert opened["key"] not in text
    with CallLog(running.proxy.log_path) as log:
        (record,) = log.executions()
        assert (record.group, record.score, record.outcome) == ("g", 1.0, "agent_error")


def test_the_admin_side_can_have_a_key(renderer: Any, tmp_path: Path) -> None:
    with bench(renderer, tmp_path / "out", list, admin_key="secret") as made:
        url = f"{made.proxy.admin_url}/executions"
        assert httpx.get(url).status_code == 401
        assert httpx.get(url, headers={"authorization": "Bearer wrong"}).status_code == 401
        assert httpx.get(url, headers={"authorization": "Bearer secret"}).status_code == 200


def test_an_open_proxy_records_any_key_by_itself(renderer: Any, tmp_path: Path) -> None:
    engines = lambda: [ScriptedEngine("one", saying(renderer, "Yes."))]  # noqa: E731
    with bench(renderer, tmp_path / "out", engines, open_to_all=True) as made:
        for key in ("first", "second", "first"):
            chat = openai.OpenAI(base_url=f"{made.proxy.url}/v1", api_key=key, max_retries=0)
            chat.chat.completions.create(model="m", messages=[{"role": "user", "content": f"{time.time()}"}])
        named = openai.OpenAI(base_url=f"{made.proxy.url}/x/third/v1", api_key="third-key", max_retries=0)
        named.chat.completions.create(model="m", messages=QUESTION)
        listed = {one["id"]: one["steps"] for one in made.call(made.proxy.executions)}
        assert sorted(listed.values()) == [1, 1, 2]
        assert listed["third"] == 1
        assert not any("first" in name for name in listed)
        for name in ("third", sorted(listed)[0]):  # the path of another's
            wrong = {"authorization": "Bearer unheard-of"}
            assert httpx.get(f"{made.proxy.url}/x/{name}/v1/models", headers=wrong).status_code == 401
        made.run(made.proxy.end_execution("third"))
        assert httpx.get(f"{made.proxy.url}/x/third/v1/models", headers=wrong).status_code == 401


def test_two_proxies_on_one_log_are_refused(running: Bench, renderer: Any) -> None:
    with pytest.raises(InputError, match="in use by process"), bench(renderer, running.folder, list):
        pass
