"""The examples: their programs, and a server that answers their harnesses."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import Any

import pytest

from gyre.backends.deploy.prepared import Prepared, prepare
from gyre.backends.deploy.settings import DeploySettings
from gyre.backends.models.tiny import tiny_tokenizer
from gyre.backends.proxy.wires.chat import ChatWire
from gyre.backends.run.attempts import Attempts
from gyre.backends.run.gateway import Endpoint
from gyre.backends.run.harness_command import environment_of, values_of
from gyre.backends.run.tasks import Task
from gyre.toml_file import read_toml

EXAMPLES = Path(__file__).parents[2] / "examples"
SAME, OTHER = DOORS = ("aaaa", "acde")  # of the tasks


def program(example: str) -> ModuleType:
    """Return an example's `prepare.py`, as if it were started: with its own folder first on the path."""
    path = EXAMPLES / example / "prepare.py"
    spec = importlib.util.spec_from_file_location(f"{example}_prepare", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(path.parent)
        spec.loader.exec_module(module)
    return module


def made(program: ModuleType, out: Path) -> Prepared:
    """Return what `prepare.py` makes, with the tasks `DOORS` and a model that was taught nothing."""
    tasks = [{"name": doors, "prompt": doors[0], "data": {"doors": list(doors)}} for doors in DOORS]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["prepare.py", "--out", str(out)])
        patch.setattr("teaching.teach", lambda model, conversations: None)
        patch.setattr(program, "tasks", lambda seed: tasks)
        assert program.main() == 0
    path = out / "settings.toml"
    return prepare(DeploySettings.of(read_toml(path), path))


Call = tuple[str, dict[str, str]]  # a tool's name, its arguments


@dataclass
class Model:
    """Answers chat completions with given calls of tools; None is an error of the server."""

    calls: Sequence[Call | None]
    requests: list[dict[str, Any]] = field(default_factory=list)

    def reply(self, request: dict[str, Any]) -> dict[str, Any] | None:
        said = self.calls[len(self.requests)]
        self.requests.append(request)
        if said is None:
            return None
        function = {"name": said[0], "arguments": json.dumps(said[1])}
        call = {"id": f"call-{len(self.requests)}", "type": "function", "function": function}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        return {
            "id": f"completion-{len(self.requests)}",
            "object": "chat.completion",
            "created": 0,
            "model": request["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        }


@contextmanager
def served(model: Model) -> Iterator[str]:
    """Serve it; gives the base URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            reply = model.reply(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            body = json.dumps(reply).encode()
            self.send_response(503 if reply is None else 200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass(frozen=True)
class Walk:
    """An execution that has ended."""

    work: Path  # its folder
    code: int  # the harness's exit code
    passed: list[float]  # each door's check


def walked(prepared: Prepared, doors: str, model: Model, folder: Path) -> Walk:
    """Let the harness do a task, in an execution's own folder and environment, and judge what it leaves."""
    task = next(task for task in prepared.tasks if task.name == doors)
    command = prepared.settings.harness_command
    attempt = Attempts(folder).next(0)
    attempt.make(task)
    with served(model) as url:
        values = values_of(command, task, attempt.name, attempt.folder, Endpoint(url, "key"))
        harness = subprocess.run(
            command.filled(command.command, values),
            check=False,
            cwd=attempt.work,
            env=environment_of(command, values, attempt.folder),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
    return Walk(attempt.work, harness.returncode, judged(prepared, task, attempt.work))


def judged(prepared: Prepared, task: Task, work: Path) -> list[float]:
    """Return each door's check, as the judge says."""
    subject = work.parent / "subject.json"
    subject.write_text(json.dumps({"data": task.data}))
    judge = subprocess.run(
        prepared.settings.evaluator_settings().command,
        check=True,
        cwd=work,
        env={"PATH": os.environ["PATH"], "GYRE_SUBJECT": str(subject)},
        stdout=subprocess.PIPE,
    )
    verdict = json.loads(judge.stdout)
    passed = [check["passed"] for check in verdict["checks"]]
    assert verdict["score"] == sum(passed) / len(passed)
    return passed


def assert_taught(program: ModuleType, tool: dict[str, Any], prepared: Prepared, model: Model) -> None:
    """Assert that what the proxy shows a model at each call is how a conversation that teaches it begins.

    The model must have done `SAME`.
    """
    taught = tiny_tokenizer().apply_chat_template(
        program.conversation(SAME[0]), tools=[tool], tokenize=True, return_dict=False
    )
    for request in model.requests:
        renderer = prepared.renderer
        shown = renderer.ids(renderer.text(ChatWire().parse(request, {}))).tolist()
        assert shown == taught[: len(shown)]
