"""From settings to the evaluator that they describe."""

from __future__ import annotations

from typing import Final

from .evaluation import Evaluator
from .evaluation_log import EvaluationLog
from .identity import identity_of
from .scorer import Scorer
from .settings import (
    CommandSettings,
    EvaluatorSettings,
    HttpSettings,
    ProcessSettings,
    PytestSettings,
    PythonSettings,
    RulesSettings,
)

_SLACK_S: Final = 300.0  # for copying artefacts and naming their state


def make_scorer(settings: EvaluatorSettings, *, jobs: int, log: EvaluationLog | None = None) -> Scorer:
    """Make what gives scores by the evaluator that `settings` describe, `jobs` at a time.

    Raises:
        InputError: as `make_evaluator`.
    """
    evaluator = make_evaluator(settings)
    return Scorer(evaluator, name=identity_of(settings), budget_s=attempt_seconds(settings), jobs=jobs, log=log)


def attempt_seconds(settings: EvaluatorSettings) -> float:
    """Return the seconds after which an attempt is given up: as stated, else its own limit and five minutes.

    Raises:
        InputError: a rules file cannot be read.
    """
    if settings.budget_s is not None:
        return settings.budget_s
    match settings:
        case ProcessSettings():
            own_s = settings.limits.wall_s + settings.limits.grace_s
        case HttpSettings():
            own_s = settings.timeout_s
        case RulesSettings():
            from .rules import load_rules

            own_s = load_rules(settings.file).settings.seconds
        case _:
            raise TypeError(f"no evaluator for {type(settings).__name__}")
    return own_s + _SLACK_S


def make_evaluator(settings: EvaluatorSettings) -> Evaluator:
    """Make the evaluator that `settings` describe. Only its own packages are loaded.

    Raises:
        InputError: a package, a file or a variable that it needs is not there, or a file holds what it must not.
    """
    match settings:
        case CommandSettings():
            from .command import CommandEvaluator

            return CommandEvaluator(settings)
        case PytestSettings():
            from .suite import SuiteEvaluator

            return SuiteEvaluator(settings)
        case PythonSettings():
            from .python_function import PythonEvaluator

            return PythonEvaluator(settings)
        case HttpSettings():
            from .http_service import HttpEvaluator

            return HttpEvaluator(settings)
        case RulesSettings():
            from .rules import RuleEvaluator, load_rules

            return RuleEvaluator(load_rules(settings.file))
    raise TypeError(f"no evaluator for {type(settings).__name__}")
