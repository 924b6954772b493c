"""A small run on this machine: harnesses are shell commands, their calls are made up, the trainer is a ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from ledger import LedgerCells, LedgerTraining

from gyre.backends.run.attempts import Attempts
from gyre.backends.run.book import RunBook
from gyre.backends.run.command_rollouts import CommandRollouts
from gyre.backends.run.driver import RealCluster
from gyre.backends.run.evaluations import ScoredEvaluations
from gyre.backends.run.gateway import Endpoint
from gyre.backends.run.harness_command import HarnessCommand
from gyre.backends.run.ports import Ports
from gyre.backends.run.run_journal import RunJournal
from gyre.backends.run.samples import StoredSamples
from gyre.backends.run.tasks import Task, TaskList
from gyre.buffer.storage import GroupStorage
from gyre.controller import Controller, ControllerSettings
from gyre.outcome import Outcome
from gyre.policies import Async, AsyncSettings
from gyre.report import ResultsFolder
from gyre.scoring.evaluation import Check, Evaluation, Subject
from gyre.scoring.evaluation_log import EvaluationLog
from gyre.scoring.scorer import Scorer
from gyre.trajectory.call import CallRecord, Finish
from gyre.trajectory.call_log import CallLog, CallLogWriter
from gyre.trajectory.execution import ExecutionRecord
from gyre.trajectory.selection import Mode, Selection
from gyre.trajectory.tree import Refusal

# Says when it starts and ends in a file that all executions share; each such line is one write.
SCRIPT = (
    'echo "start $GYRE_EXECUTION" >> "$DIARY"; sleep "$NAP_S"; '
    'cat "$GYRE_PROMPT_FILE" > answer.txt; echo "end $GYRE_EXECUTION" >> "$DIARY"'
)


@dataclass(frozen=True)
class Plan:
    """What is run."""

    steps: int = 3
    groups_per_step: int = 2
    group_size: int = 2
    phi: float = 0.0
    mu: int = 1
    capacity: int = 4  # executions of the cell that serves
    every: int = 1  # updates between checkpoints
    nap_s: float = 0.05
    command: tuple[str, ...] = ("/bin/sh", "-c", SCRIPT)
    options: dict[str, Any] = field(default_factory=dict)  # of HarnessCommand
    settings: dict[str, Any] = field(default_factory=dict)  # of ControllerSettings

    @property
    def header(self) -> dict[str, Any]:
        """Settings for the run's folder."""
        return {"policy": "async", "steps": self.steps, "phi": self.phi, "mu": self.mu, "every": self.every}

    def controller(self) -> Controller:
        """A new controller."""
        settings = ControllerSettings(
            self.steps, self.groups_per_step, self.group_size, keeps_until_checkpoint=True, **self.settings
        )
        return Controller(settings, Async(AsyncSettings(phi=self.phi, mu=self.mu, train_cells=1)))


class LoggedGateway:
    """Makes calls up, three an execution, and logs them when it ends: what a proxy does, without engines."""

    def __init__(self, path: Path) -> None:
        self._writer = CallLogWriter(path)
        self._log = CallLog(path)
        self.close = self._writer.close

    def open(self, name: str, *, group: str, harness: str, task: str, seconds: float | None) -> Endpoint:
        return Endpoint("http://127.0.0.1:9", "key")

    async def end(self, name: str, outcome: Outcome | None) -> Outcome:
        ended = outcome or Outcome.COMPLETED
        for call in made_up_calls(name):
            self._writer.append(call)
        self._writer.append_execution(ExecutionRecord(name, name, outcome=ended.value))
        self._writer.flush()
        return ended

    async def calls(self, name: str) -> Sequence[CallRecord | Refusal]:
        self._log.refresh()
        return list(self._log.read(name))


def made_up_calls(name: str) -> list[CallRecord]:
    """Three turns of one conversation; the tokens depend on the execution, not on the attempt."""
    number = int(name.partition("-")[0])
    context = np.arange(4, dtype=np.int32)
    calls = []
    for turn in range(3):
        output = np.array([10 + number, 20 + turn, 30 + number % 7], np.int32)
        calls.append(
            CallRecord(
                execution=name,
                call_id=f"call-{turn}",
                sequence=turn,
                input_ids=context,
                output_ids=output,
                logprobs=np.full(3, -0.5, np.float32),
                versions=np.zeros(3, np.int32),
                finish=Finish.TOOL_CALLS if turn < 2 else Finish.STOP,
            )
        )
        context = np.concatenate((context, output, np.array([5, 6], np.int32)))
    return calls


def score_of(execution: int) -> float:
    """What an execution with the right answer gets."""
    return (execution % 3) / 2


class AnswerEvaluator:
    """Gives a score that depends on the task and on the execution, if the answer is there."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []

    async def evaluate(self, subject: Subject) -> Evaluation:
        self.asked.append((subject.execution, subject.attempt))
        await asyncio.sleep(0.002)
        assert subject.folder is not None
        answer = subject.folder / "answer.txt"
        if not answer.exists():
            return Evaluation(False, None, reason="no answer")
        right = answer.read_text() == f"task {subject.task}"
        score = score_of(int(subject.execution.partition("-")[0])) if right else 0.0
        return Evaluation(True, score, reference="sha256:0", checks=(Check("answer", float(right)),))


@dataclass
class LocalRun:
    """An open run and its parts."""

    cluster: RealCluster
    book: RunBook
    controller: Controller
    storage: GroupStorage
    training: LedgerTraining
    cells: LedgerCells
    evaluator: AnswerEvaluator
    attempts: Attempts


def tasks_of(count: int = 5) -> TaskList:
    """A few tasks."""
    return TaskList([Task(str(number), prompt=f"task {number}") for number in range(count)])


@contextmanager
def local_run(folder: Path, plan: Plan, *, resume: bool = False) -> Iterator[LocalRun]:
    """Open a run in a folder."""
    with ExitStack() as stack:
        results = stack.enter_context(ResultsFolder.create(folder, plan.header, resume=resume))
        controller, book = plan.controller(), RunBook(tasks_of())
        journal = RunJournal.open(results, controller, book)
        storage = stack.enter_context(GroupStorage(folder / "samples"))
        (folder / "calls").mkdir(exist_ok=True)
        gateway = LoggedGateway(folder / "calls" / "proxy.calls")
        stack.callback(gateway.close)
        attempts = Attempts(folder / "executions")
        command = HarnessCommand(
            plan.command,
            environment={"DIARY": str(folder.absolute().with_name(f"{folder.name}.diary")), "NAP_S": str(plan.nap_s)},
            **plan.options,
        )
        rollouts = CommandRollouts(command, gateway, attempts)
        evaluator = AnswerEvaluator()
        samples = StoredSamples(storage, gateway, Selection(mode=Mode.ALL))
        stack.callback(samples.close)
        training = LedgerTraining(folder / "ledger.json", samples.group, every=plan.every)
        cells = LedgerCells(training, capacity=plan.capacity)
        log = stack.enter_context(EvaluationLog(folder / "evaluations.jsonl"))
        scorer = Scorer(evaluator, name="answer", budget_s=10.0, jobs=8, log=log)
        ports = Ports(rollouts, ScoredEvaluations(scorer), samples, cells, training)
        cluster = RealCluster(journal, ports)
        yield LocalRun(cluster, book, controller, storage, training, cells, evaluator, attempts)


def diary_of(folder: Path) -> list[tuple[str, str]]:
    """What the harnesses said: ("start" or "end", name of the attempt)."""
    path = folder.with_name(f"{folder.name}.diary")
    return [tuple(line.split()) for line in path.read_text().splitlines()] if path.exists() else []  # type: ignore[misc]
