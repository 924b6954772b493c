"""The example `examples/doors`: what its files say to each other."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import Any

import pytest

for package in ("aiohttp", "megatron.core", "prometheus_client", "starlette", "transformers", "uvicorn"):
    pytest.importorskip(package, reason="a real run needs the extra gyre[run]")

from gyre.backends.deploy.prepared import Prepared, prepare  # noqa: E402
from gyre.backends.deploy.settings import DeploySettings  # noqa: E402
from gyre.backends.models.tiny import tiny_tokenizer  # noqa: E402
from gyre.backends.proxy.wires.chat import ChatWire  # noqa: E402
from gyre.toml_file import read_toml  # noqa: E402

EXAMPLE = Path(__file__).parents[2] / "examples" / "doors"


@pytest.fixture(scope="module")
def program() -> Iterator[ModuleType]:
    sys.path.insert(0, str(EXAMPLE))
    try:
        yield importlib.import_module("prepare")
    finally:
        sys.path.remove(str(EXAMPLE))


@pytest.fixture(scope="module")
def folder(program: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `prepare.py` makes, with a model that was taught nothing."""
    out = tmp_path_factory.mktemp("doors")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["prepare.py", "--out", str(out)])
        patch.setattr(program, "teach", lambda model, conversations: None)
        assert program.main() == 0
    return out


@pytest.fixture(scope="module")
def prepared(folder: Path) -> Prepared:
    path = folder / "settings.toml"
    return prepare(DeploySettings.of(read_toml(path), path))


class Model:
    """Answers chat completions with given doors; None is an error of the server."""

    def __init__(self, doors: list[str | None]) -> None:
        self.doors = doors
        self.requests: list[dict[str, Any]] = []

    def reply(self, request: dict[str, Any]) -> dict[str, Any] | None:
        door = self.doors[len(self.requests)]
        self.requests.append(request)
        if door is None:
            return None
        function = {"name": "go", "arguments": json.dumps({"to": door})}
        call = {"id": f"call-{len(self.requests)}", "type": "function", "function": function}
        return {"choices": [{"message": {"role": "assistant", "content": None, "tool_calls": [call]}}]}


@contextmanager
def served(model: Model) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            reply = model.reply(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(503 if reply is None else 200)
            self.end_headers()
            self.wfile.write(json.dumps(reply).encode())

        def log_message(self, format: str, *arguments: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def walked(folder: Path, doors: list[str], model: Model, tmp_path: Path) -> tuple[int, dict[str, Any]]:
    """Run the harness and the judge; return the harness's exit code and what the judge says."""
    task = {"name": "one", "data": {"doors": doors}}
    (tmp_path / "tasks.jsonl").write_text(json.dumps(task) + "\n")
    (tmp_path / "subject.json").write_text(json.dumps({"data": task["data"]}))
    with served(model) as url:
        environment = {
            "PATH": os.environ["PATH"],
            "OPENAI_BASE_URL": url,
            "OPENAI_API_KEY": "key",
            "GYRE_MODEL": "model",
            "GYRE_EXECUTION": "0-0",
            "GYRE_TASK": "one",
            "GYRE_SUBJECT": str(tmp_path / "subject.json"),
        }

        def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
            command = [sys.executable, "-I", "-S", str(folder / script), *arguments]
            return subprocess.run(
                command, check=False, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
            )

        harness = run("harness.py", str(tmp_path / "tasks.jsonl"))
        judge = run("judge.py")
    assert judge.returncode == 0
    return harness.returncode, json.loads(judge.stdout)


def test_the_model_is_taught_what_the_proxy_shows_it(
    program: ModuleType, folder: Path, prepared: Prepared, tmp_path: Path
) -> None:
    model = Model(["a"] * program.LENGTH)
    code, said = walked(folder, ["a"] * program.LENGTH, model, tmp_path)
    assert (code, said["score"]) == (0, 1.0)

    taught = tiny_tokenizer().apply_chat_template(
        program.conversation("a"), tools=[program.TOOL], tokenize=True, return_dict=False
    )
    for request in model.requests:
        renderer = prepared.renderer
        shown = renderer.ids(renderer.text(ChatWire().parse(request, {}))).tolist()
        assert shown == taught[: len(shown)]
    assert len(model.requests) == program.LENGTH


def test_a_door_that_was_not_named_costs_its_share(folder: Path, tmp_path: Path) -> None:
    model = Model(["a", "e", "d", "e"])
    code, said = walked(folder, ["a", "c", "d", "e"], model, tmp_path)
    assert (code, said["score"]) == (0, 0.75)
    assert [check["passed"] for check in said["checks"]] == [1, 0, 1, 1]


def test_an_error_ends_the_harness_and_is_written_down(folder: Path, tmp_path: Path) -> None:
    code, said = walked(folder, ["a", "c", "d", "e"], Model(["a", None]), tmp_path)
    assert (code, said["score"]) == (1, 0.25)
    assert "503" in json.loads((tmp_path / "walk.json").read_text())["error"]
