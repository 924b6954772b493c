"""Tests as evaluator: the score is the share that passed, by weight."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from fnmatch import fnmatchcase
from typing import Any, Final

from ..errors import InputError
from .evaluation import Check, Evaluation
from .isolated_run import Run
from .junit import CaseResult, ReportError, Verdict, by_test, failed, read_junit
from .process import ProcessEvaluator, scored_or_invalid
from .result import MOST_CHECKS
from .settings import PytestSettings, Skipped
from .workplace import Workplace

_PYTEST: Final = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "--continue-on-collection-errors")
_PYTEST_ENDED: Final = (0, 1)  # all passed, some failed; others: interrupted, its own fault, wrong usage, no tests
_SHOWN_FAILURES: Final = 20
_OTHERS: Final = "tests"
_SKIPPED_AS: Final = {Skipped.PASS: 1.0, Skipped.FAIL: 0.0}


class SuiteEvaluator(ProcessEvaluator[PytestSettings]):
    """Runs tests, or reads a report of tests that were run."""

    def __init__(self, settings: PytestSettings) -> None:
        """Check that there is a pytest: later, its absence would look like a crash of the tests.

        Raises:
            InputError: there is none, or no such `python`.
        """
        super().__init__(settings)
        if not (settings.command or settings.file):
            _check_pytest(settings.python)

    def argv(self, place: Workplace) -> list[str]:
        """Return pytest's command, or the settings' own; one that does nothing where only a report is read."""
        settings = self.settings
        if settings.file:
            return ["true"]
        if settings.command:
            return [place.filled_in(word) for word in settings.command]
        arguments = [place.filled_in(word) for word in (*settings.arguments, *settings.tests)]
        return [settings.python or sys.executable, *_PYTEST, f"--junitxml={place.report}", *arguments]

    def read(self, run: Run, place: Workplace) -> Evaluation:
        """Return what the report says."""
        settings = self.settings
        runs_pytest = not (settings.command or settings.file)
        if runs_pytest and run.exit_code not in _PYTEST_ENDED:
            return self._without_result(f"pytest ended with exit code {run.exit_code}: {run.last_words}")
        report = place.report
        if settings.file:
            if place.artefacts is None:
                return self._without_result("there is no report, for there are no artefacts")
            report = (place.artefacts / settings.file).resolve()
            if not report.is_relative_to(place.artefacts):
                return self._without_result("the report lies outside the artefacts")
        try:
            cases = read_junit(report)
        except ReportError as error:
            return self._without_result(f"{error}; exit code {run.exit_code}: {run.last_words}")
        return share_passed(by_test(cases) if runs_pytest else cases, settings)

    def _without_result(self, reason: str) -> Evaluation:
        return scored_or_invalid(self.settings.score_at_crash, reason)


def _check_pytest(python: str) -> None:
    program = shutil.which(python or sys.executable)
    if program is None:
        if "/" in python and not python.startswith("/"):
            return  # one of the artefacts
        raise InputError(f"python: {python}: no such program; give an interpreter that has pytest")
    has_it = subprocess.run(
        [program, "-c", "import pytest"], check=False, capture_output=True, stdin=subprocess.DEVNULL
    )
    if has_it.returncode != 0:
        raise InputError(f"python: {program} has no pytest; pip install pytest, or give another interpreter")


def share_passed(cases: list[CaseResult], settings: PytestSettings) -> Evaluation:
    """Return the share of the weight that passed, with a check for each pattern of `settings.weights`.

    Tests that failed, had an error or could not be collected count as 0, and so do those that are missing of
    `settings.expected`. Where nothing counts it is as after a crash.
    """
    shares: defaultdict[str, list[float]] = defaultdict(list)
    for case in cases:
        if case.verdict is not Verdict.SKIPPED:
            shares[_pattern_of(case.test, settings)].append(float(case.verdict is Verdict.PASSED))
        elif settings.skipped in _SKIPPED_AS:
            shares[_pattern_of(case.test, settings)].append(_SKIPPED_AS[settings.skipped])
    missing = max(0, (settings.expected or 0) - len(cases))
    if missing:
        shares[_OTHERS] += [0.0] * missing
    weights = {**settings.weights, _OTHERS: settings.default_weight}
    total = sum(weights[pattern] * len(found) for pattern, found in shares.items())
    facts = _facts(cases, missing)
    if total <= 0:
        reason = "no test counts: there is none, all are skipped or have no weight"
        return scored_or_invalid(settings.score_at_crash, reason, tests=facts)
    checks = [
        Check(pattern, sum(found) / len(found), weights[pattern] * len(found), detail=f"{len(found)} tests")
        for pattern, found in shares.items()
    ]
    score = sum(weights[pattern] * sum(found) for pattern, found in shares.items()) / total
    return Evaluation(valid=True, score=score, checks=tuple(checks[:MOST_CHECKS]), details={"tests": facts})


def _pattern_of(test: str, settings: PytestSettings) -> str:
    return next((pattern for pattern in settings.weights if fnmatchcase(test, pattern)), _OTHERS)


def _facts(cases: list[CaseResult], missing: int) -> dict[str, Any]:
    counts = Counter(case.verdict.value for case in cases)
    shown = [f"{case.test}: {case.detail}" for case in failed(cases)][:_SHOWN_FAILURES]
    return {**{verdict.value: counts[verdict.value] for verdict in Verdict}, "missing": missing, "not_passed": shown}
