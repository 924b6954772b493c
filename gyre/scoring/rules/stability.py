"""Whether rules say the same of the same input, time after time, in any order and side by side.

A rule that does not is noise in the score: members of one group get advantages that their executions did not earn.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain, cycle, islice
from pathlib import Path
from typing import Final

from ..evaluation import Subject
from .changes import Changes
from .evaluator import RuleEvaluator
from .rule import Rule
from .rule_set import RuleSet

LEAST_TIMES: Final = 3  # in the order of the file, in reverse, at once: each pair of rules runs both ways round
_MOST_AT_ONCE: Final = 16


class Mode(StrEnum):
    """How the rules of one evaluation run."""

    FILE_ORDER = "one by one"
    REVERSED = "one by one, in reverse"
    AT_ONCE = "at once"
    SHUFFLED = "one by one, shuffled"
    SHUFFLED_AT_ONCE = "at once, shuffled"

    @property
    def one_by_one(self) -> bool:
        """Whether each rule ends before the next begins."""
        return self not in {Mode.AT_ONCE, Mode.SHUFFLED_AT_ONCE}


@dataclass(frozen=True, slots=True)
class Seen:
    """What one run of one rule came to."""

    mode: Mode
    passed: float | None  # None: the rule was broken
    detail: str
    seconds: float
    changed: tuple[str, ...] = ()  # files of the artefacts that it changed, the first few; known where one_by_one

    @property
    def outcome(self) -> str:
        """The outcome in words."""
        if self.passed is None:
            return "broken"
        return {0.0: "failed", 1.0: "passed"}.get(self.passed, f"share {self.passed:.6g}")


@dataclass(frozen=True, slots=True)
class RuleOnFolder:
    """All runs of a rule on one folder."""

    rule: Rule
    folder: Path
    seen: tuple[Seen, ...]

    @property
    def outcomes(self) -> dict[float | None, list[Seen]]:
        """The runs by what they came to, the most frequent first."""
        found: dict[float | None, list[Seen]] = defaultdict(list)
        for one in self.seen:
            found[one.passed].append(one)
        return dict(sorted(found.items(), key=lambda item: -len(item[1])))

    @property
    def flips(self) -> bool:
        """Whether they came to more than one thing."""
        return len(self.outcomes) > 1


@dataclass(frozen=True, slots=True)
class Stability:
    """What came of running rules many times."""

    version: int
    times: int
    found: tuple[RuleOnFolder, ...]  # by rule in the order of the file, then by folder

    @property
    def flips(self) -> tuple[RuleOnFolder, ...]:
        """Where a rule came to different things on the same input."""
        return tuple(one for one in self.found if one.flips)

    @property
    def broken(self) -> tuple[RuleOnFolder, ...]:
        """Where a rule never worked."""
        return tuple(one for one in self.found if all(seen.passed is None for seen in one.seen))

    def by_rule(self) -> dict[str, list[RuleOnFolder]]:
        """Everything about each rule, in the order of the file."""
        grouped: dict[str, list[RuleOnFolder]] = defaultdict(list)
        for one in self.found:
            grouped[one.rule.name].append(one)
        return dict(grouped)


def modes(times: int) -> list[Mode]:
    """Return how each of `times` evaluations runs its rules."""
    further = cycle((Mode.SHUFFLED, Mode.SHUFFLED_AT_ONCE))
    return list(islice(chain((Mode.FILE_ORDER, Mode.REVERSED, Mode.AT_ONCE), further), times))


async def check_stability(
    rules: RuleSet,
    subjects: Sequence[Subject],
    times: int,
    jobs: int = 1,
    on_done: Callable[[], None] = lambda: None,
) -> Stability:
    """Evaluate each subject `times` times, `jobs` evaluations side by side; `on_done` is called after each.

    All subjects have a folder, and the same version. Each evaluation has a fresh copy, if the rules run anything.

    Raises:
        OSError: a copy cannot be made.
    """
    room = asyncio.Semaphore(jobs)
    evaluator = RuleEvaluator(rules)

    async def one(subject: Subject, mode: Mode, number: int) -> dict[str, Seen]:
        async with room:
            seen = await _evaluated(evaluator, subject, mode, number)
            on_done()
            return seen

    async with asyncio.TaskGroup() as group:
        tasks = [
            [group.create_task(one(subject, mode, number)) for number, mode in enumerate(modes(times))]
            for subject in subjects
        ]
    version = subjects[0].version
    return Stability(
        version,
        times,
        tuple(
            RuleOnFolder(rule, _folder(subject), tuple(task.result()[rule.name] for task in of_subject))
            for rule in rules.applying(version)
            for subject, of_subject in zip(subjects, tasks, strict=True)
        ),
    )


async def _evaluated(evaluator: RuleEvaluator, subject: Subject, mode: Mode, number: int) -> dict[str, Seen]:
    order = list(evaluator.rules.applying(subject.version))
    if mode is Mode.REVERSED:
        order.reverse()
    elif mode in {Mode.SHUFFLED, Mode.SHUFFLED_AT_ONCE}:
        random.Random(number).shuffle(order)
    async with evaluator.workplace(subject, order) as place:
        watch = Changes(_folder(replace(subject, folder=place.artefacts)))
        await watch.begin()
        at_once = 1 if mode.one_by_one else min(len(order), _MOST_AT_ONCE)
        judged = await evaluator.judged(subject, place, order, at_once, watch.take if mode.one_by_one else None)
    return {
        one.rule.name: Seen(mode, one.passed, one.detail, one.seconds, watch.by_rule.get(one.rule.name, ()))
        for one in judged
    }


def _folder(subject: Subject) -> Path:
    assert subject.folder is not None
    return subject.folder
