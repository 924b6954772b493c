"""What befalls clients, engines and the proxy itself: one unbroken reply, generated once, recorded as it was."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

httpx = pytest.importorskip("httpx")
openai = pytest.importorskip("openai", reason="a real client of the chat protocol")
for package in ("aiohttp", "prometheus_client", "starlette", "transformers", "uvicorn"):
    pytest.importorskip(package, reason="the proxy needs the extra gyre[proxy]")

from proxy_bench import Bench, bench, renderer_of, saying  # noqa: E402

from gyre.backends.engines.scripted import Pace, ScriptedEngine  # noqa: E402
from gyre.backends.proxy.settings import ProxySettings  # noqa: E402
from gyre.trajectory.call import Finish  # noqa: E402
from gyre.trajectory.check import refusal  # noqa: E402

REPLY = "one two three four five six seven eight nine ten " * 4
QUESTION = [{"role": "user", "content": "Count."}]
PACE = Pace(tokens_per_s=60.0)


@pytest.fixture(scope="session")
def renderer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return renderer_of(tmp_path_factory.getbasetemp() / "proxy-tokenizer")


@pytest.fixture
def running(renderer: Any, tmp_path: Path) -> Iterator[Bench]:
    script = saying(renderer, REPLY)
    engines = lambda: [ScriptedEngine(name, script, pace=PACE) for name in ("one", "two")]  # noqa: E731
    with bench(renderer, tmp_path / "out", engines) as made:
        yield made


def client(opened: Any) -> Any:
    return openai.OpenAI(base_url=f"{opened.base_url}/v1", api_key=opened.key, max_retries=0, timeout=30)


def until(true: Callable[[], object]) -> None:
    """Wait for something that is about to happen."""
    for _ in range(1000):
        if true():
            return
        time.sleep(0.01)
    raise AssertionError("it did not happen")


def generations(made: Bench) -> int:
    return sum(len(engine.generations) for engine in made.engines)


def serving(made: Bench) -> ScriptedEngine:
    """The engine that a reply is coming from."""
    until(lambda: any(made.proxy.pool.load(engine.name)[0] for engine in made.engines))
    return next(engine for engine in made.engines if made.proxy.pool.load(engine.name)[0])


def streamed(made: Bench, opened: Any, befall: Callable[[ScriptedEngine], object], after: int) -> str:
    """Stream a reply; when `after` pieces have come, let something befall the engine that serves it."""
    text = ""
    parts = client(opened).chat.completions.create(model="m", messages=QUESTION, stream=True)
    for count, part in enumerate(parts, 1):
        text += part.choices[0].delta.content or ""
        if count == after:
            befall(serving(made))
    return text.strip()


@pytest.mark.parametrize("after", [1, 2, 20])
def test_an_engine_killed_in_mid_reply(running: Bench, after: int) -> None:
    def kill(engine: ScriptedEngine) -> None:
        running.loop.call_soon_threadsafe(engine.kill)

    opened = running.open("killed")
    assert streamed(running, opened, kill, after) == REPLY.strip()
    (record,) = running.records("killed")
    assert refusal(record) is None
    whole = running.renderer.tokenizer.decode(record.output_ids.tolist(), skip_special_tokens=True)
    assert whole == REPLY
    assert generations(running) == 2


def test_versions_stay_with_their_tokens(running: Bench) -> None:
    def publish_and_abort(engine: ScriptedEngine) -> None:
        def work() -> None:
            for one in running.engines:
                one.publish(7)
            engine.pause(abort=True)
            running.loop.call_later(0.2, engine.resume)

        running.loop.call_soon_threadsafe(work)

    assert streamed(running, running.open("versions"), publish_and_abort, 10) == REPLY.strip()
    (record,) = running.records("versions")
    assert record.versions is not None
    assert set(record.versions) == {0, 7}
    assert np.all(np.diff(record.versions) >= 0)


def test_all_engines_gone_for_a_while(running: Bench) -> None:
    def kill_all(_: ScriptedEngine) -> None:
        def work() -> None:
            for engine in running.engines:
                engine.kill()
                running.loop.call_later(1.5, engine.restart)

        running.loop.call_soon_threadsafe(work)

    opened = running.open("gone")
    assert streamed(running, opened, kill_all, 10) == REPLY.strip()
    (record,) = running.records("gone")
    assert refusal(record) is None


def test_a_client_that_hangs_up_ends_the_generation(running: Bench) -> None:
    opened = running.open("hung")
    stream = client(opened).chat.completions.create(model="m", messages=QUESTION, stream=True)
    for _ in range(5):
        next(stream)
    stream.close()
    until(lambda: running.records("hung"))
    (record,) = running.records("hung")
    assert (record.finish, record.delivered) == (Finish.ABORT, False)
    assert 0 < len(record.output_ids) == len(record.logprobs if record.logprobs is not None else ())
    assert sum(len(engine.closed) for engine in running.engines) == 1
    assert not any(running.proxy.pool.load(engine.name)[0] for engine in running.engines)
    again = client(opened).chat.completions.create(model="m", messages=QUESTION)
    assert again.choices[0].message.content.strip() == REPLY.strip()
    assert generations(running) == 2


def test_a_client_that_hangs_up_while_it_waits_for_an_engine(renderer: Any, tmp_path: Path) -> None:
    with bench(renderer, tmp_path / "out", list, ProxySettings(linger_s=0.0)) as made:
        opened = made.open("waiting")
        with pytest.raises(openai.APITimeoutError):
            client(opened).with_options(timeout=0.5).chat.completions.create(model="m", messages=QUESTION)
        until(lambda: made.proxy.pool.queued() == 0)
        assert made.records("waiting") == []


def test_retries_at_once_share_one_generation(running: Bench) -> None:
    opened = running.open("twice")

    def ask(stream: bool) -> str:
        if not stream:
            done = client(opened).chat.completions.create(model="m", messages=QUESTION)
            return str(done.choices[0].message.content)
        parts = client(opened).chat.completions.create(model="m", messages=QUESTION, stream=True)
        return "".join(part.choices[0].delta.content or "" for part in parts)

    with ThreadPoolExecutor(4) as threads:
        said = set(threads.map(ask, (True, False, True, True)))
    assert {text.strip() for text in said} == {REPLY.strip()}
    assert generations(running) == 1
    assert len(running.records("twice")) == 1
    assert ask(True).strip() == REPLY.strip()  # and one that comes after
    assert generations(running) == 1


def test_a_retry_after_a_hang_up_gets_all_from_the_start(renderer: Any, tmp_path: Path) -> None:
    engines = lambda: [ScriptedEngine("one", saying(renderer, REPLY), pace=PACE)]  # noqa: E731
    with bench(renderer, tmp_path / "out", engines, ProxySettings(linger_s=10.0)) as made:
        opened = made.open("back")
        stream = client(opened).chat.completions.create(model="m", messages=QUESTION, stream=True)
        first = [next(stream) for _ in range(8)]
        stream.close()
        parts = list(client(opened).chat.completions.create(model="m", messages=QUESTION, stream=True))
        assert [part.choices[0].delta.content for part in parts[:8]] == [
            part.choices[0].delta.content for part in first
        ]
        assert "".join(part.choices[0].delta.content or "" for part in parts).strip() == REPLY.strip()
        assert generations(made) == 1
        (record,) = made.records("back")
        assert (record.finish, record.delivered) == (Finish.STOP, True)


def test_the_record_is_there_before_the_replys_end(running: Bench) -> None:
    opened = running.open("order")
    for path, ask, end in (
        ("/v1/chat/completions", {"messages": QUESTION}, b"[DONE]"),
        ("/v1/messages", {"messages": QUESTION, "max_tokens": 500}, b"message_stop"),
        ("/v1/responses", {"input": "Count."}, b"response.completed"),
    ):
        before = len(running.records("order"))
        headers, body = {"authorization": f"Bearer {opened.key}"}, {"model": "m", "stream": True, **ask}
        with httpx.stream("POST", opened.base_url + path, headers=headers, json=body, timeout=30) as reply:
            for part in reply.iter_raw():
                if end in part:
                    assert len(running.records("order")) == before + 1


def test_an_execution_that_ends_breaks_its_calls_off(running: Bench) -> None:
    opened = running.open("ending")
    stream = client(opened).chat.completions.create(model="m", messages=QUESTION, stream=True)
    for _ in range(5):
        next(stream)
    ending = running.submit(running.proxy.end_execution("ending"))
    with pytest.raises(openai.APIError):
        list(stream)
    ending.result(10)
    (record,) = running.records("ending")
    assert (record.finish, record.delivered) == (Finish.ABORT, False)


def test_a_broken_stream_never_ends_cleanly(running: Bench) -> None:
    opened = running.open("broken")
    headers = {"authorization": f"Bearer {opened.key}"}
    body = {"model": "m", "stream": True, "messages": QUESTION}
    url = f"{opened.base_url}/v1/chat/completions"
    seen = b""

    def read() -> None:
        nonlocal seen
        with httpx.stream("POST", url, headers=headers, json=body, timeout=30) as reply:
            for part in reply.iter_raw():
                seen += part
                if seen.count(b"data:") == 5:
                    running.submit(running.proxy.end_execution("broken"))

    with pytest.raises(httpx.RemoteProtocolError):
        read()
    assert b"[DONE]" not in seen
    assert b'"finish_reason":"' not in seen


def test_a_proxy_that_was_restarted_goes_on_where_it_stood(renderer: Any, tmp_path: Path) -> None:
    tool = {"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}
    calling = 'I look.\n<tool_call>\n{"name": "bash", "arguments": {"command":  "ls"}}\n</tool_call>'
    script = saying(renderer, calling)
    said: list[Any] = list(QUESTION)

    def turn(made: Bench, opened: Any) -> Any:
        return client(opened).chat.completions.create(model="m", messages=said, tools=[tool]).choices[0].message

    def grow(message: Any) -> None:
        call = message.tool_calls[0]
        function = {"name": "bash", "arguments": json.dumps(json.loads(call.function.arguments))}
        calls = [{"id": call.id, "type": "function", "function": function}]
        said.append({"role": "assistant", "content": message.content, "tool_calls": calls})
        said.append({"role": "tool", "tool_call_id": call.id, "content": "a file"})

    engines = lambda: [ScriptedEngine("one", script)]  # noqa: E731
    with bench(renderer, tmp_path / "out", engines) as made:
        opened = made.open("long", key="sk-long")
        for _ in range(3):
            last = turn(made, opened)
            before = list(said)
            grow(last)
    with bench(renderer, tmp_path / "out", engines) as made:
        opened = made.open("long", key="sk-long")
        (listed,) = made.call(made.proxy.executions)
        assert listed["steps"] == 3
        after, said = said, before
        repeated = turn(made, opened)  # what the harness asks again, not having seen the reply
        assert repeated.to_dict() == last.to_dict()
        assert made.engines[0].generations == []
        said = after
        turn(made, opened)
        records = made.records("long")
        assert [record.sequence for record in records] == [0, 1, 2, 3]
        context = np.concatenate((records[2].input_ids, records[2].output_ids))
        np.testing.assert_array_equal(records[3].input_ids[: len(context)], context)
        assert records[3].start_s >= records[2].end_s


def test_calls_that_run_when_the_proxy_stops_are_made_anew(renderer: Any, tmp_path: Path) -> None:
    engines = lambda: [ScriptedEngine("one", saying(renderer, REPLY), pace=PACE)]  # noqa: E731
    broken = threading.Event()

    def ask(opened: Any) -> None:
        with pytest.raises((openai.APIError, httpx.HTTPError)):
            list(client(opened).chat.completions.create(model="m", messages=QUESTION, stream=True))
        broken.set()

    with bench(renderer, tmp_path / "out", engines) as made:
        opened = made.open("cut", key="sk-cut")
        asking = threading.Thread(target=ask, args=(opened,))
        asking.start()
        until(lambda: made.engines[0].generations)
    asking.join(20)
    assert broken.is_set()
    with bench(renderer, tmp_path / "out", engines) as made:
        opened = made.open("cut", key="sk-cut")
        done = client(opened).chat.completions.create(model="m", messages=QUESTION)
        assert done.choices[0].message.content.strip() == REPLY.strip()
        whole = [record for record in made.records("cut") if record.delivered]
        assert [record.finish for record in whole] == [Finish.STOP]
