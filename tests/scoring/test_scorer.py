"""One attempt within its budget, whatever the evaluator does, and none made twice."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from evaluating import children, left, settings_of, subject_of

from gyre.outcome import Outcome
from gyre.scoring.evaluation import Check, CheckStage, Evaluation, Subject, event_checks
from gyre.scoring.evaluation_log import EvaluationLog
from gyre.scoring.making import attempt_seconds, make_scorer
from gyre.scoring.scorer import Scorer

Judge = Callable[[Subject], Awaitable[Any]]


class By:
    """An evaluator that judges by a function, and counts."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self.calls: list[tuple[str, int]] = []

    async def evaluate(self, subject: Subject) -> Evaluation:
        self.calls.append((subject.execution, subject.attempt))
        said: Evaluation = await self.judge(subject)
        return said


async def half(subject: Subject) -> Evaluation:
    return Evaluation(valid=True, score=0.5)


def scored(judge: Judge, subject: Subject, budget_s: float = 30.0) -> Evaluation:
    async def score() -> Evaluation:
        return await Scorer(By(judge), name="by", budget_s=budget_s, jobs=2).score(subject)

    return asyncio.run(score())


@pytest.mark.parametrize("outcome", [Outcome.COMPLETED, Outcome.HARNESS_TIMEOUT, Outcome.AGENT_ERROR])
def test_what_an_execution_left_is_scored_also_after_its_time_out(outcome: Outcome, tmp_path: Path) -> None:
    """ridgesai/ridges#458: an agent may run out of time and a valid score of what it left arrive later."""
    folder = left(tmp_path / "a", answer="42")
    evaluation = scored(half, subject_of(folder, outcome=outcome))
    assert (evaluation.valid, evaluation.score) == (True, 0.5)
    assert evaluation.reference.startswith("sha256:")


def test_an_infrastructure_failure_is_a_placeholder_and_never_evaluated() -> None:
    """UniRL#214: a failure of the infrastructure was taken for a normal end."""
    evaluator = By(half)
    subjects = [subject_of(None, outcome=Outcome.ENV_SETUP_FAILED), subject_of(None)]
    for subject in subjects:
        scorer = Scorer(evaluator, name="by", budget_s=1, jobs=1)
        evaluation = asyncio.run(scorer.score(subject))
        assert (evaluation.valid, evaluation.score, evaluation.reference) == (True, 0.0, "nothing")
        assert evaluation.reason.startswith("a placeholder")
    assert evaluator.calls == []


@pytest.mark.parametrize("outcome", [Outcome.OVERALL_TIMEOUT, Outcome.CANCELLED])
def test_the_overall_time_out_is_dropped(outcome: Outcome, tmp_path: Path) -> None:
    evaluation = scored(half, subject_of(tmp_path, outcome=outcome))
    assert (evaluation.valid, evaluation.reason) == (False, f"not evaluated: its outcome is {outcome}")


async def zero(subject: Subject) -> Evaluation:
    return Evaluation(valid=True, score=0.0, reference="commit:1")


def test_a_valid_zero_is_kept(tmp_path: Path) -> None:
    evaluation = scored(zero, subject_of(tmp_path))
    assert (evaluation.valid, evaluation.score, evaluation.reference) == (True, 0.0, "commit:1")


async def raising(subject: Subject) -> Evaluation:
    raise RuntimeError("a bug\nof two lines")


async def hanging(subject: Subject) -> Evaluation:
    await asyncio.sleep(1000)
    return Evaluation(valid=True, score=1.0)


async def late(subject: Subject) -> Evaluation:
    try:
        await asyncio.sleep(1000)
    except asyncio.CancelledError:
        return Evaluation(valid=True, score=1.0)
    raise AssertionError


async def cancelling_itself(subject: Subject) -> Evaluation:
    raise asyncio.CancelledError


async def not_a_number(subject: Subject) -> Evaluation:
    return Evaluation(valid=True, score=math.nan)


async def nothing(subject: Subject) -> Any:
    return None


@pytest.mark.parametrize(
    ("judge", "why"),
    [
        (raising, "cannot be scored: RuntimeError: a bug of two lines"),
        (hanging, "not done within the attempt's 0.2 s"),
        (late, "not done within the attempt's 0.2 s"),
        (cancelling_itself, "the evaluator cancelled itself"),
        (not_a_number, "score is nan, expected a finite number"),
        (nothing, "score is None, expected a number"),
    ],
)
def test_whatever_an_evaluator_does_there_is_an_evaluation(judge: Judge, why: str, tmp_path: Path) -> None:
    evaluation = scored(judge, subject_of(tmp_path), budget_s=0.2)
    assert (evaluation.valid, evaluation.score) == (False, None)
    assert why in evaluation.reason


def test_artefacts_that_cannot_be_read_are_not_valid(tmp_path: Path) -> None:
    assert f"{tmp_path}/gone" in scored(half, subject_of(tmp_path / "gone")).reason


def test_an_evaluator_that_cannot_be_cancelled_is_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("gyre.scoring.scorer._PATIENCE_S", 0.1)

    async def deaf_for_a_while() -> Evaluation:
        async def deaf(subject: Subject) -> Evaluation:
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    continue
            return Evaluation(valid=True, score=1.0)

        release = asyncio.Event()
        evaluation = await Scorer(By(deaf), name="by", budget_s=0.1, jobs=1).score(subject_of(tmp_path))
        release.set()
        return evaluation

    assert asyncio.run(deaf_for_a_while()).reason == "not done within the attempt's 0.1 s"
    assert "execution e: its evaluator goes on though it was cancelled" in caplog.text


def test_a_hung_verifier_holds_its_place_for_its_budget_only(tmp_path: Path) -> None:
    """fw-ai/cookbook#692: a verifier that hangs must not leave its group at 7 of 8 for ever."""
    script = 'grep -q \'"execution": "hung"\' && exec sleep 1000; exit 0'
    settings = settings_of("command", command=["sh", "-c", script], limits={"wall_s": 2, "grace_s": 0})
    names = [f"e{number}" for number in range(7)]

    async def group() -> list[Evaluation]:
        scorer = make_scorer(settings, jobs=2)
        return await asyncio.gather(*(scorer.score(subject_of(tmp_path, execution=one)) for one in ["hung", *names]))

    born = children()
    hung, *others = asyncio.run(group())
    assert (hung.valid, hung.reason.startswith("not done within its time limit")) == (False, True)
    assert [one.score for one in others] == [1.0] * 7
    assert children() == born


def test_no_more_than_the_stated_number_run_at_once(tmp_path: Path) -> None:
    running, most = 0, 0

    async def counting(subject: Subject) -> Evaluation:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        return Evaluation(valid=True, score=1.0)

    async def score_all() -> None:
        scorer = Scorer(By(counting), name="by", budget_s=10, jobs=3)
        await asyncio.gather(*(scorer.score(subject_of(tmp_path, execution=str(n))) for n in range(12)))

    asyncio.run(score_all())
    assert most == 3


def scored_with_log(
    path: Path, evaluator: By, subjects: list[Subject], name: str = "by"
) -> tuple[list[Evaluation], list[tuple[str, int]]]:
    async def score() -> list[Evaluation]:
        with EvaluationLog(path) as log:
            scorer = Scorer(evaluator, name=name, budget_s=10, jobs=2, log=log)
            return [await scorer.score(subject) for subject in subjects]

    evaluator.calls.clear()
    return asyncio.run(score()), list(evaluator.calls)


def test_an_evaluation_that_was_made_is_not_made_again_after_a_restart(tmp_path: Path) -> None:
    folder, path, evaluator = left(tmp_path / "a", answer="42"), tmp_path / "log.jsonl", By(half)
    first, second = subject_of(folder), subject_of(folder, attempt=1)
    before, calls = scored_with_log(path, evaluator, [first])
    assert calls == [("e", 0)]
    after, calls = scored_with_log(path, evaluator, [first, second])
    assert calls == [("e", 1)]  # another attempt is made
    assert after[0] == before[0]
    _, calls = scored_with_log(path, evaluator, [first], name="another")
    assert calls == [("e", 0)]  # another judge judges again
    left(folder, answer="43")
    _, calls = scored_with_log(path, evaluator, [first])
    assert calls == [("e", 0)]  # another state is judged again


def test_a_record_that_cannot_be_written_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(self: EvaluationLog, recorded: object) -> None:
        raise OSError(28, "No space left on device", "log.jsonl")

    monkeypatch.setattr(EvaluationLog, "append", full)
    (evaluation,), _ = scored_with_log(tmp_path / "log.jsonl", By(half), [subject_of(tmp_path)])
    assert evaluation.score == 0.5
    assert "its evaluation cannot be recorded: [Errno 28] No space left" in caplog.text


def test_logs_name_the_execution(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gyre.scoring")
    scored(half, subject_of(tmp_path, execution="e7", attempt=2))
    assert "execution e7, attempt 2: score 0.5" in caplog.text


def test_cancelling_a_score_ends_what_it_started(tmp_path: Path) -> None:
    settings = settings_of("command", command=["sh", "-c", "touch begun; sleep 1000"], place="artefacts")

    async def cancelled() -> None:
        score = asyncio.create_task(make_scorer(settings, jobs=1).score(subject_of(tmp_path)))
        while not (tmp_path / "begun").exists():
            await asyncio.sleep(0.01)
        score.cancel()
        with pytest.raises(asyncio.CancelledError):
            await score

    born = children()
    asyncio.run(cancelled())
    assert children() == born


def test_an_attempt_outlasts_the_limits_of_its_evaluator(tmp_path: Path) -> None:
    command = settings_of("command", command=["true"], limits={"wall_s": 7200})
    assert attempt_seconds(command) > 7200
    assert attempt_seconds(settings_of("http", url="http://x", timeout_s=3600)) > 3600
    assert attempt_seconds(settings_of("command", command=["true"], budget_s=5)) == 5


def test_what_else_is_known_of_an_execution_is_judged_anew(tmp_path: Path) -> None:
    folder = left(tmp_path / "a", answer="42")
    evaluator = By(half)

    async def score() -> None:
        with EvaluationLog(tmp_path / "log") as log:
            scorer = Scorer(evaluator, name="by", budget_s=30, jobs=1, log=log)
            for more in ({}, {"version": 3}, {"data": {"expected": 42}}, {"answer": "43"}, {"steps": 5}, {"steps": 5}):
                await scorer.score(subject_of(folder, **more))

    asyncio.run(score())
    assert len(evaluator.calls) == 4


def test_checks_on_the_process_are_known_by_their_name_in_a_journal() -> None:
    checks = (
        Check("tests", 0.5),
        Check("few steps", 1.0, stage=CheckStage.PROCESS),
        Check("process:tools", 0.0, stage=CheckStage.PROCESS),
    )
    found = event_checks(Evaluation(valid=True, score=0.5, checks=checks))
    assert found == (("tests", 0.5), ("process:few steps", 1.0), ("process:tools", 0.0))
