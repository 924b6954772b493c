"""A run that can begin: its settings were checked, and what they name was read."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from gyre.controller import Controller
from gyre.errors import InputError
from gyre.scoring.making import make_evaluator
from gyre.scoring.settings import CommandSettings, EvaluatorSettings, PytestSettings
from gyre.task_order import TaskOrder

from ..models.config_file import read_architecture
from ..models.facts import facts
from ..proxy.conversation import Speaker
from ..proxy.tokens import Parsers, Renderer
from ..proxy.tokens.template import STRUCTURED
from ..run.tasks import Task
from .settings import DeploySettings
from .tables import ModelTable
from .tasks_file import read_tasks


@dataclass(frozen=True, slots=True)
class Prepared:
    """Settings, and what they name, loaded."""

    settings: DeploySettings
    tasks: tuple[Task, ...]
    renderer: Renderer

    def controller(self) -> Controller:
        """Return a new controller.

        Raises:
            InputError: settings contradict each other.
        """
        settings = self.settings
        order = TaskOrder(len(self.tasks), seed=settings.seed, shuffled=settings.tasks.shuffle)
        return Controller(settings.controller_settings(), settings.make_policy(), order)


def prepare(settings: DeploySettings) -> Prepared:
    """Check all that can be checked before anything is started.

    Raises:
        InputError: a file or program is missing or malformed, or settings contradict each other.
    """
    _check_model(settings)
    settings.make_policy().settings.refuse_impossible(settings.cells.count, settings.cells.standalone)
    settings.harness_command.check()
    _check_evaluator(settings.evaluator_settings())
    tasks = tuple(read_tasks(settings.tasks.file))
    settings.harness_command.check_prompts(tasks)
    prepared = Prepared(settings, tasks, make_renderer(settings.model))
    prepared.controller()
    return prepared


def make_renderer(model: ModelTable) -> Renderer:
    """Return what turns requests into tokens of the model.

    Raises:
        InputError: there is no tokenizer or chat template, or a parser's name is unknown.
    """
    parsers = Parsers(model.tool_call_parser, model.reasoning_parser)
    parsers.load()
    trusted = STRUCTURED | ({Speaker.USER} if model.user_structure else set())
    return Renderer(
        model.folder,
        parsers=parsers,
        template=None if model.template is None else _text(model.template),
        template_kwargs=model.template_kwargs,
        structured=trusted,
    )


def _check_evaluator(settings: EvaluatorSettings) -> None:
    make_evaluator(settings)
    if not isinstance(settings, (CommandSettings, PytestSettings)) or not settings.command:
        return
    program = settings.command[0]
    # A relative path is looked for where the evaluator works, and a PATH of the settings' own leads elsewhere.
    if "{" in program or (os.sep in program and not os.path.isabs(program)) or "PATH" in settings.env:
        return
    if shutil.which(program) is None:
        raise InputError(f"evaluator command: no program {program!r}; install it, or give its path")


def _check_model(settings: DeploySettings) -> None:
    folder = settings.model.folder
    if not folder.is_dir():  # a name would be looked for on the network
        raise InputError(f"model.folder: {folder}: no such folder; give one, or make one with gyre model")
    facts(folder)  # whole, and of a kind that can be trained
    try:
        settings.cells.layout.check(read_architecture(folder))
    except InputError as error:
        raise InputError(f"cells.{error}") from error


def _text(template: Path) -> str:
    try:
        return template.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{template}: the chat template cannot be read ({error})") from error
