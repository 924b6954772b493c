"""How a harness is started: its command, its environment, its time."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gyre.errors import InputError

from .gateway import Endpoint
from .harness_process import NO_LIMITS, ProcessLimits
from .tasks import Task

_PASSED_ON: Final = ("PATH", "LD_LIBRARY_PATH", "LANG", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR")
_PLACE: Final = re.compile(r"\{([a-z_]+)\}")
MOST_ARGUMENT_BYTES: Final = 128 * 1024 - 512  # Linux: 128 KiB, with a variable's name and the ending zero
LOST_EXIT_CODE: Final = 75  # EX_TEMPFAIL of sysexits.h: "the attempt failed for no fault of the agent's"
FOLDER_MARK: Final = "GYRE_FOLDER"  # of the attempt
RUN_MARK: Final = "GYRE_EXECUTIONS"  # folder of all attempts


@dataclass(frozen=True, slots=True)
class HarnessCommand:
    """A harness as a command. Times in seconds.

    In `command`, `setup` and `environment`, {prompt}, {prompt_file}, {work}, {base_url}, {key}, {model}, {execution}
    and {task} stand for the execution's own; other braces stay as they are.
    """

    command: tuple[str, ...]
    name: str = ""  # of the harness, as the log of calls knows it
    setup: tuple[str, ...] = ()  # run before it in the working folder, without a model; if it fails, nothing is scored
    environment: Mapping[str, str] = field(default_factory=dict)
    model: str = "gyre-policy"
    harness_timeout_s: float | None = None  # from its start: then it is told to stop, and what it leaves is scored
    farewell_s: float = 30.0  # that it has from then on to end by itself
    overall_timeout_s: float | None = None  # set-up included: then it is killed, and dropped
    grace_s: float = 5.0  # between being asked to end and being killed
    limits: ProcessLimits = NO_LIMITS

    def check(self) -> None:
        """Refuse what cannot be started, before anything runs.

        Raises:
            InputError: there is no such program or a time is not above 0.
        """
        for field_name in ("command", "setup"):
            argv = getattr(self, field_name)
            if not argv or "{" in argv[0]:
                continue
            if os.sep in argv[0] and not os.path.isabs(argv[0]):
                raise InputError(
                    f"harness {field_name}: {argv[0]!r} would be looked for in the folder of each execution; "
                    "give an absolute path"
                )
            if shutil.which(argv[0]) is None:
                raise InputError(f"harness {field_name}: no program {argv[0]!r}; install it, or give its path")
        if not self.command:
            raise InputError("harness command: empty; give a program and its arguments")
        for time_s in (self.harness_timeout_s, self.overall_timeout_s):
            if time_s is not None and not time_s > 0:
                raise InputError(f"harness time-out: {time_s:g} s, expected more than 0")

    def check_prompts(self, tasks: Iterable[Task]) -> None:
        """Refuse prompts that the system would not hand to a process.

        Raises:
            InputError: one is too long for where {prompt} stands; the message names the task.
        """
        texts = [text for text in (*self.command, *self.setup, *self.environment.values()) if "{prompt}" in text]
        if not texts:
            return
        for task in tasks:
            size = max(len(fill(text, {"prompt": task.prompt}).encode(errors="replace")) for text in texts)
            if size > MOST_ARGUMENT_BYTES:
                raise InputError(
                    f"task {task.name!r}: prompt: makes an argument or variable of {size:,} bytes, more than the "
                    f"{MOST_ARGUMENT_BYTES:,} that a process may be given; use {{prompt_file}} in place of {{prompt}}"
                )

    def filled(self, argv: tuple[str, ...], values: Mapping[str, str]) -> list[str]:
        """Return arguments with the execution's values in place of their names."""
        return [fill(word, values) for word in argv]


def fill(text: str, values: Mapping[str, str]) -> str:
    """Return a text with values in place of names in braces."""
    return _PLACE.sub(lambda place: values.get(place[1], place[0]), text)


def values_of(command: HarnessCommand, task: Task, name: str, folder: Path, endpoint: Endpoint) -> dict[str, str]:
    """Return what stands for the names in braces."""
    return {
        "prompt": task.prompt,
        "prompt_file": str(folder / "prompt.txt"),
        "work": str(folder / "work"),
        "base_url": endpoint.base_url,
        "key": endpoint.key,
        "model": command.model,
        "execution": name,
        "task": task.name,
    }


def environment_of(command: HarnessCommand, values: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return a harness's whole environment: nothing of the driver's own but how programs are found.

    Clients of each protocol find the proxy by the variables that they look for.
    """
    passed_on = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    base_url, key = values["base_url"], values["key"]
    return {
        "PATH": os.defpath,
        "LANG": "C.UTF-8",
        **passed_on,
        "HOME": str(folder / "home"),
        "TMPDIR": str(folder / "tmp"),
        "OPENAI_BASE_URL": f"{base_url}/v1",
        "OPENAI_API_BASE": f"{base_url}/v1",
        "OPENAI_API_KEY": key,
        "ANTHROPIC_BASE_URL": base_url,
        "ANTHROPIC_API_KEY": key,
        "ANTHROPIC_AUTH_TOKEN": key,
        "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",  # it changes with each call, and with it every prefix
        "GYRE_EXECUTION": values["execution"],
        "GYRE_MODEL": values["model"],
        "GYRE_PROMPT_FILE": values["prompt_file"],
        "GYRE_TASK": values["task"],
        FOLDER_MARK: str(folder),
        RUN_MARK: str(folder.parents[1]),
        **{name: fill(value, values) for name, value in command.environment.items()},
    }
