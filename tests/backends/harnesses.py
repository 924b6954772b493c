"""Real harnesses, unmodified: found where `install_harnesses.sh` put them, run each with a home of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

FOLDER_VARIABLE: Final = "GYRE_HARNESSES"
EVERY_VARIABLE: Final = "GYRE_EVERY_HARNESS"
MODEL: Final = "gyre-policy"
CONTENT: Final = "exact tokens ✓\n"  # of hello.txt, which every task is about
TASK: Final = f"Create hello.txt with the content {CONTENT!r}, read it back, then say that you are done."
PATIENCE_S: Final = 240.0  # for one run on a busy machine


only_on_demand: Final = pytest.mark.skipif(
    not os.environ.get(EVERY_VARIABLE), reason=f"takes up to a minute; {EVERY_VARIABLE}=1 runs it with this harness too"
)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One execution's base URL, without /v1, and its key."""

    base_url: str
    key: str


@dataclass(frozen=True, slots=True)
class Finished:
    """A run that has ended."""

    returncode: int
    output: str  # stdout and stderr


@dataclass(frozen=True, slots=True)
class Harness:
    """How to start one harness, and what a model says to it to do the task.

    `prepare` writes its settings into a home and returns the arguments and the environment. `tool_calls` are the
    turns of the task but the last, each a tool's name and arguments; `last` is the last turn's text, which may be none
    where a tool ends the run.
    """

    name: str
    program: str  # within the folder of harnesses
    prepare: Callable[[Path, Endpoint], tuple[Sequence[str], Mapping[str, str]]]
    tool_calls: tuple[tuple[str, Mapping[str, Any]], ...]
    last: str = ""

    def turns(self) -> list[str]:
        """What the model says, in Hermes's form of tool calls, turn by turn."""
        calls = [
            f'<tool_call>\n{{"name": {json.dumps(name)}, "arguments": {json.dumps(arguments)}}}\n</tool_call>'
            for name, arguments in self.tool_calls
        ]
        return [f"Step {at}.\n{call}" for at, call in enumerate(calls, 1)] + ([self.last] if self.last else [])

    def path(self) -> Path:
        """Return the program, or skip the test that asks for it."""
        default = Path(__file__).resolve().parents[2] / ".venv" / "harnesses"
        folder = Path(os.environ.get(FOLDER_VARIABLE, default))
        found = folder / self.program
        if not found.exists():
            pytest.skip(f"{self.name} is not in {folder}: see install_harnesses.sh; {FOLDER_VARIABLE} names the folder")
        return found


def first_of(first: Harness, *others: Harness) -> list[Any]:
    """Return parameters of a test that takes up to a minute a harness: the first always, the others on demand."""
    return [
        pytest.param(first, id=first.name),
        *(pytest.param(other, id=other.name, marks=only_on_demand) for other in others),
    ]


def run(harness: Harness, home: Path, workdir: Path, endpoint: Endpoint, *, patience_s: float = PATIENCE_S) -> Finished:
    """Run the task in `workdir` to its end. Whatever the harness started is gone when this returns."""
    program = harness.path()
    home.mkdir(parents=True)
    workdir.mkdir(parents=True)
    arguments, environment = harness.prepare(home, endpoint)
    process = subprocess.Popen(
        [program, *arguments],
        cwd=workdir,
        env={"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", "NO_COLOR": "1", **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=patience_s)
    except subprocess.TimeoutExpired:
        _end_group(process.pid)
        output, _ = process.communicate()
        pytest.fail(f"{harness.name} did not end within {patience_s:.0f} s: {output[-2000:]}")
    finally:
        _end_group(process.pid)
    return Finished(process.returncode, output)


def _end_group(group: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def _pi(home: Path, endpoint: Endpoint) -> tuple[Sequence[str], Mapping[str, str]]:
    provider = {
        "baseUrl": f"{endpoint.base_url}/v1",
        "api": "openai-completions",
        "apiKey": "GYRE_KEY",
        "models": [{"id": MODEL, "contextWindow": 200_000, "maxTokens": 8_000}],
    }
    _write_json(home / ".pi" / "agent" / "models.json", {"providers": {"gyre": provider}})
    # Its own 3 tries at 2, 4 and 8 s bridge no restart of a proxy on a busy machine.
    (home / ".pi" / "agent" / "settings.json").write_text(json.dumps({"retry": {"maxRetries": 8}}))
    environment = {"GYRE_KEY": endpoint.key, "PI_OFFLINE": "1", "PI_SKIP_VERSION_CHECK": "1"}
    return ["-p", "--provider", "gyre", "--model", MODEL, TASK], environment


def _mini(home: Path, endpoint: Endpoint) -> tuple[Sequence[str], Mapping[str, str]]:
    arguments = [
        *("-y", "--exit-immediately", "-t", TASK, "-m", f"openai/{MODEL}", "-c", "mini.yaml"),
        *("-c", f"model.model_kwargs.api_base={endpoint.base_url}/v1", "-c", "agent.cost_limit=0"),
    ]
    environment = {
        "OPENAI_API_KEY": endpoint.key,
        "MSWEA_CONFIGURED": "true",
        "MSWEA_COST_TRACKING": "ignore_errors",
        "MSWEA_GLOBAL_CONFIG_DIR": str(home),
        "MSWEA_SILENT_STARTUP": "1",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
    return arguments, environment


def _codex(home: Path, endpoint: Endpoint) -> tuple[Sequence[str], Mapping[str, str]]:
    settings = home / ".codex" / "config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(
        f'model = "{MODEL}"\nmodel_provider = "gyre"\n\n[model_providers.gyre]\nname = "gyre"\n'
        f'base_url = "{endpoint.base_url}/v1"\nenv_key = "GYRE_KEY"\nwire_api = "responses"\n'
    )
    arguments = ["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--json", TASK]
    return arguments, {"GYRE_KEY": endpoint.key}


def _claude(home: Path, endpoint: Endpoint) -> tuple[Sequence[str], Mapping[str, str]]:
    arguments = ["-p", TASK, "--dangerously-skip-permissions", "--output-format", "stream-json", "--verbose"]
    environment = {
        "ANTHROPIC_BASE_URL": endpoint.base_url,
        "ANTHROPIC_API_KEY": endpoint.key,
        "ANTHROPIC_MODEL": MODEL,
        "ANTHROPIC_SMALL_FAST_MODEL": MODEL,
        "IS_SANDBOX": "1",
        "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    }
    return arguments, environment


def _qwen(home: Path, endpoint: Endpoint) -> tuple[Sequence[str], Mapping[str, str]]:
    _write_json(home / ".qwen" / "settings.json", {"privacy": {"usageStatisticsEnabled": False}})
    environment = {"OPENAI_BASE_URL": f"{endpoint.base_url}/v1", "OPENAI_API_KEY": endpoint.key, "OPENAI_MODEL": MODEL}
    return ["-p", TASK, "--yolo", "--auth-type", "openai", "--output-format", "json"], environment


def _opencode(home: Path, endpoint: Endpoint) -> tuple[Sequence[str], Mapping[str, str]]:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{endpoint.base_url}/v1", "apiKey": endpoint.key},
        "models": {MODEL: {"limit": {"context": 200_000, "output": 8_000}}},
    }
    model = f"gyre/{MODEL}"
    settings = {"provider": {"gyre": provider}, "model": model, "small_model": model, "autoupdate": False}
    _write_json(home / ".config" / "opencode" / "opencode.json", settings)
    return ["run", TASK], {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"}


def _write_json(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(value))


LAST: Final = "Done: hello.txt holds what it should hold, and was read back to make sure of that."
_WRITE: Final = f"printf '{CONTENT.rstrip()}\\n' > hello.txt"
_READ: Final = "cat hello.txt"

PI: Final = Harness(
    "pi",
    "node_modules/.bin/pi",
    _pi,
    (("write", {"path": "hello.txt", "content": CONTENT}), ("read", {"path": "hello.txt"})),
    LAST,
)
MINI: Final = Harness(
    "mini-swe-agent",
    "mini/bin/mini",
    _mini,
    (
        ("bash", {"command": _WRITE}),
        ("bash", {"command": _READ}),
        ("bash", {"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"}),
    ),
)
CODEX: Final = Harness(
    "codex",
    "node_modules/.bin/codex",
    _codex,
    (("exec_command", {"cmd": _WRITE}), ("exec_command", {"cmd": _READ})),
    LAST,
)
CLAUDE: Final = Harness(
    "claude-code",
    "node_modules/.bin/claude",
    _claude,
    (("Bash", {"command": _WRITE}), ("Bash", {"command": _READ})),
    LAST,
)
QWEN: Final = Harness(
    "qwen-code",
    "node_modules/.bin/qwen",
    _qwen,
    (
        ("run_shell_command", {"command": _WRITE, "is_background": False}),
        ("run_shell_command", {"command": _READ, "is_background": False}),
    ),
    LAST,
)
OPENCODE: Final = Harness(
    "opencode",
    "node_modules/.bin/opencode",
    _opencode,
    (("bash", {"command": _WRITE, "description": "Write it"}), ("bash", {"command": _READ, "description": "Read it"})),
    LAST,
)
