"""Evaluates executions by the rules of a file."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace

from ..evaluation import Check, Evaluation, Subject
from ..process import with_left_out
from ..result import invalid
from ..workplace import Place, Workplace, workplace
from .rule import Judging, OnTimeout, Rule
from .rule_set import RuleSet
from .verdict import BrokenRuleError, FailedCheckError, Verdict, told

_PATIENCE_S = 15.0  # beyond a rule's own limit: a process that is killed takes a moment to go


@dataclass(frozen=True, slots=True)
class Judged:
    """A rule that has run."""

    rule: Rule
    passed: float | None  # None: it is broken
    detail: str = ""  # why it failed, or is broken
    output: str | None = None
    seconds: float = 0.0


OnJudged = Callable[[Judged], Awaitable[None]]


class RuleEvaluator:
    """Evaluator of executions by rules.

    What rules run may change files, so each evaluation works on a copy of its own if one of its rules runs anything. An
    execution that left nothing fails all rules that look at what it left.
    """

    def __init__(self, rules: RuleSet) -> None:
        """Evaluate by `rules`."""
        self.rules = rules

    async def evaluate(self, subject: Subject) -> Evaluation:
        """Run the rules that apply at the subject's version, and combine what they say.

        A rule that does not work makes the evaluation invalid.
        """
        begun = time.perf_counter()
        applying = self.rules.applying(subject.version)
        try:
            async with self.workplace(subject, applying) as place:
                judged = await self.judged(subject, place, applying, self.rules.settings.at_once)
            evaluation = with_left_out(self._evaluation(judged, subject.version), place.left_out)
        except (OSError, ValueError) as error:
            evaluation = invalid(f"cannot be evaluated: {getattr(error, 'strerror', None) or error}")
        return replace(evaluation, seconds=time.perf_counter() - begun)

    def workplace(self, subject: Subject, rules: Sequence[Rule]) -> AbstractAsyncContextManager[Workplace]:
        """Return the place for an evaluation: with a copy of the artefacts, if one of the rules runs something."""
        return workplace(subject, Place.COPY if any(rule.needs_copy for rule in rules) else Place.ARTEFACTS)

    async def judged(
        self,
        subject: Subject,
        place: Workplace,
        order: Sequence[Rule],
        at_once: int,
        on_judged: OnJudged | None = None,
    ) -> list[Judged]:
        """Run rules, `at_once` side by side, each after those that it waits for; return them in the order of the file.

        They begin in `order` as far as they need not wait. `on_judged` is awaited after each, before others begin.
        """
        run = _OneRun(self.rules, subject, place, on_judged)
        await run.run(order, at_once)
        return [run.done[rule.name] for rule in self.rules.rules if rule.name in run.done]

    def _evaluation(self, judged: Sequence[Judged], version: int) -> Evaluation:
        terms = {one.rule.name: self.rules.term(one.rule, one.passed or 0.0, version) for one in judged}
        checks = tuple(
            Check(one.rule.name, one.passed, terms[one.rule.name].weight, one.rule.stage, one.detail)
            for one in judged
            if one.passed is not None
        )
        broken = [one for one in judged if one.passed is None]
        if broken:
            more = f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
            return invalid(f"rule {broken[0].rule.name!r}: {broken[0].detail}{more}", checks=checks)
        found = self.rules.combined(list(terms.values()))
        details = {
            "rules": self.rules.digest,
            "uncapped": found.uncapped,
            "limited_by": list(found.limited_by),
            "seconds": {one.rule.name: round(one.seconds, 3) for one in judged},
        }
        return Evaluation(valid=True, score=found.score, checks=checks, details=details)


class _OneRun:
    """Rules of one evaluation on their way."""

    def __init__(self, rules: RuleSet, subject: Subject, place: Workplace, on_judged: OnJudged | None) -> None:
        self._rules = rules
        self._subject = subject
        self._place = place
        self._on_judged = on_judged
        self._until = asyncio.get_running_loop().time() + rules.settings.seconds
        self.done: dict[str, Judged] = {}

    async def run(self, order: Sequence[Rule], at_once: int) -> None:
        waiting, running = list(order), set[asyncio.Task[Judged]]()
        try:
            while waiting or running:
                while len(running) < at_once and (rule := self._next(waiting)):
                    waiting.remove(rule)
                    running.add(asyncio.create_task(self._judged(rule)))
                finished, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in finished:
                    await self._take(task.result())
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    def _next(self, waiting: Sequence[Rule]) -> Rule | None:
        """The first that waits for none that is still to end."""
        return next((rule for rule in waiting if rule.comes_after <= self.done.keys()), None)

    async def _take(self, judged: Judged) -> None:
        self.done[judged.rule.name] = judged
        if self._on_judged is not None:
            await self._on_judged(judged)

    async def _judged(self, rule: Rule) -> Judged:
        begun = time.perf_counter()
        try:
            verdict = await self._verdict(rule)
            result = Judged(rule, verdict.passed, verdict.detail, verdict.output)
        except FailedCheckError as error:
            result = Judged(rule, 0.0, str(error))
        except BrokenRuleError as error:
            result = Judged(rule, None, str(error))
        except TimeoutError:
            said = "not done within its time limit"
            result = Judged(rule, 0.0 if rule.on_timeout is OnTimeout.FAIL else None, said)
        except Exception as error:  # such as a disk that is full: no word of it is about the execution
            result = Judged(rule, None, f"{type(error).__name__}: {error}")
        return replace(result, detail=told(result.detail), seconds=time.perf_counter() - begun)

    async def _verdict(self, rule: Rule) -> Verdict:
        filled = rule.for_task(self._subject.data)
        outputs = {name: judged.output for name, judged in self.done.items()}
        judging = Judging(self._subject, self._place, self._rules.folder, self._rules.settings.limits, outputs)
        async with asyncio.timeout_at(self._until), asyncio.timeout(rule.seconds + _PATIENCE_S):
            return await filled.judge(judging)
