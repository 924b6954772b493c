"""`gyre proxy` as a process: started, used by a client, ended by Ctrl-C; what it recorded is built into samples."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

httpx = pytest.importorskip("httpx")
openai = pytest.importorskip("openai", reason="a real client of the chat protocol")
for package in ("aiohttp", "prometheus_client", "starlette", "transformers", "uvicorn"):
    pytest.importorskip(package, reason="the proxy needs the extra gyre[proxy]")

from engine_faults import serving  # noqa: E402
from proxy_bench import renderer_of, saying  # noqa: E402
from proxy_process import proxy  # noqa: E402

from gyre.backends.engines.launching import free_port  # noqa: E402
from gyre.backends.engines.scripted import ScriptedEngine  # noqa: E402
from gyre.backends.engines.scripted_server import ScriptedServer  # noqa: E402
from gyre.backends.proxy import json_logs  # noqa: E402
from gyre.cli import main  # noqa: E402
from gyre.trajectory.call_log import CallLog  # noqa: E402

QUESTION = [{"role": "user", "content": "What is there?"}]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.getbasetemp() / "proxy-tokenizer"
    renderer_of(folder)
    return folder


@pytest.fixture(scope="module")
def engine(tokenizer: Path) -> Iterator[str]:
    """Address of a server that talks as SGLang does."""
    loop, ready, stop = asyncio.new_event_loop(), threading.Event(), asyncio.Event()
    found: list[str] = []

    async def serve() -> None:
        double = ScriptedEngine("double", saying(renderer_of(tokenizer), "Nothing, it seems."))
        async with serving(ScriptedServer(double).application()) as url:
            found.append(url)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), daemon=True)
    thread.start()
    assert ready.wait(20)
    yield found[0]
    loop.call_soon_threadsafe(stop.set)
    thread.join(20)


def ask(url: str, key: str, text: str = "What is there?") -> Any:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, timeout=60)
    messages = [{"role": "user", "content": text}]
    return client.chat.completions.create(model="m", messages=messages).choices[0].message.content


def test_it_records_what_samples_are_built_from(engine: str, tokenizer: Path, tmp_path: Path) -> None:
    out = tmp_path / "calls"
    options = ("--engine", engine, "--tokenizer", str(tokenizer), "--out", str(out), "--execution", "first=sk-first")
    with proxy(*options, forked=False) as running:
        assert ask(running.url("execution first"), "sk-first") == "Nothing, it seems."
        admin = running.url("admin and metrics").removesuffix("/metrics")
        headers = {"authorization": "Bearer admin secret"}
        assert httpx.get(f"{admin}/executions").status_code == 401
        with proxy(*options) as twin:
            _, refused = twin.process.communicate(timeout=60)
        assert twin.process.returncode == 2
        assert "in use by process" in refused
        logged = running.end()
    lines = [json.loads(line) for line in logged.splitlines() if line.startswith("{")]
    recorded = [line for line in lines if line["message"] == "a call is recorded"]
    assert [(line["execution"], line["finish"], line["protocol"]) for line in recorded] == [("first", "stop", "chat")]
    assert "sk-first" not in logged
    assert "admin secret" not in logged
    assert "What is there" not in logged
    assert "the log is closed" in logged

    with proxy(*options, "--open", "--max-steps", "2") as running:
        url = running.url("execution first")
        assert ask(url, "sk-first", "And then?") == "Nothing, it seems."
        assert "limit of 2 steps" in ask(url, "sk-first", "And then again?")
        assert ask(running.url("by its key"), "any-key") == "Nothing, it seems."
        admin = running.url("admin and metrics").removesuffix("/metrics")
        ended = httpx.post(f"{admin}/executions/first/end", json={"score": 1.0}, headers=headers)
        assert ended.json() == {"id": "first", "score": 1.0, "outcome": "harness_timeout"}
        running.end()
    with CallLog(out / "proxy.calls") as log:
        assert log.call_count("first") == 2
        assert len(log.unfinished()) == 1
        assert log.verify() == ()

    built = CliRunner().invoke(main, ["samples", "build", str(out), "--out", str(tmp_path / "store"), "--json"])
    assert built.exit_code == 0, built.output
    summary = json.loads(built.stdout)
    assert (summary["executions"], summary["calls"], summary["refused"]) == (1, 2, 0)
    assert len(summary["unfinished"]) == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--tokenizer", "nowhere"), "no such folder"),
        (("--tool-call-parser", "unheard-of"), "parser 'unheard-of'"),
        (("--template-kwargs", "{"), "--template-kwargs: not JSON"),
        (("--template", "nowhere.jinja"), "chat template cannot be read"),
        (("--execution", "nokey"), "expected a name, an equals sign and a key"),
        (("--execution", "a=two words"), "must be printable ASCII"),
        (("--executions-file", "nowhere.txt"), "nowhere.txt: cannot be read"),
        (("--engine", "127.0.0.1:30000"), "--engine 127.0.0.1:30000: not an address"),
        (("--engine", "http://127.0.0.1:99999"), "--engine http://127.0.0.1:99999: not an address"),
        (("--engine", "http://me:secret@127.0.0.1:9"), "may hold no user and password; set GYRE_ENGINE_KEY"),
        (("--host", "203.0.113.1", "--execution", "a=b"), "cannot listen there"),
        (("--execution", "a/b=key"), "letters, digits"),
        (("--execution", "ü=key"), "letters, digits"),
        (("--execution", "../../a=key"), "letters, digits"),
        (("--execution", "a=b", "--execution", "a=c"), "is open already"),
        (("--execution", "a=b", "--execution", "c=b"), "another execution has this key"),
        (("--temperature", "nan"), "--temperature nan: expected a finite number"),
        (("--calls-per-s", "nan"), "--calls-per-s nan: expected a finite number"),
        (("--max-seconds", "inf"), "--max-seconds inf: expected a finite number"),
        (("--top-k", "0"), "--top-k 0: expected 1 or more"),
        (("--port", "{port}", "--admin-port", "{port}"), "cannot listen there (Address already in use)"),
    ],
)
def test_bad_input_is_one_line(
    tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], said: str
) -> None:
    monkeypatch.setattr(json_logs, "log_json", lambda level: None)  # this process's logs are not the command's
    given = ["proxy", "--engine", "http://127.0.0.1:9", "--out", str(tmp_path / "calls"), "--port", "0", "--quiet"]
    given += ["--admin-key", "k"] + ([] if "--tokenizer" in options else ["--tokenizer", str(tokenizer)])
    free = str(free_port())
    given += [option.replace("{port}", free) for option in options]
    done = CliRunner().invoke(main, given, catch_exceptions=False)
    assert done.exit_code == 2
    last = done.output.strip().splitlines()[-1]
    assert last.startswith("gyre: ")
    assert said in last


def test_others_reach_no_admin_side_without_a_key(
    tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_logs, "log_json", lambda level: None)
    options = ["--out", str(tmp_path), "--tokenizer", str(tokenizer), "--open", "--host", "0.0.0.0", "--port", "0"]
    done = CliRunner().invoke(main, ["proxy", "--engine", "http://127.0.0.1:9", *options], env={"GYRE_ADMIN_KEY": None})
    assert done.exit_code == 2
    assert "give an admin key" in done.output


def test_keys_can_stand_in_a_file_and_engines_that_are_away_in_the_log(tokenizer: Path, tmp_path: Path) -> None:
    file = tmp_path / "executions"
    file.write_text("# of today\nfirst=sk-1=2\n\nsecond=sk-2\n")
    options = ("--out", str(tmp_path / "calls"), "--tokenizer", str(tokenizer), "--executions-file", str(file))
    twice = ("--engine", "http://127.0.0.1:9", "--engine", "HTTP://127.0.0.1:9/")  # one engine
    with proxy(*twice, *options) as running:
        url = running.url("execution second")
        assert httpx.get(f"{url}/v1/models", headers={"x-api-key": "sk-2"}).status_code == 200
        first = url.replace("second", "first")
        assert httpx.get(f"{first}/v1/models", headers={"x-api-key": "sk-1=2"}).status_code == 200
        assert running.process.stderr is not None
        said = ""
        while "http://127.0.0.1:9 cannot be reached or used" not in said:
            line = running.process.stderr.readline()
            assert line, said
            said += line
        running.end()

    file.write_text("first=sk-1\nsecond\n")
    refused = CliRunner().invoke(main, ["proxy", "--engine", "http://127.0.0.1:9", *options])
    assert refused.exit_code == 2
    assert "executions, line 2: expected a name" in refused.output
