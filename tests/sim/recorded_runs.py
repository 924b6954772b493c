"""Folders of runs whose truth is known: simulated iteration by iteration, with every call recorded as a proxy does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from serving_oracle import Engine, Execution, Oracle, Request

import gyre.sim.cluster
from gyre.config import RunSettings
from gyre.events import ExecutionScored
from gyre.journal import Entry, Header
from gyre.report.journal_file import JournalWriter
from gyre.role import Role
from gyre.scoring.evaluation import Evaluation
from gyre.scoring.evaluation_log import EvaluationKey, EvaluationLog, Recorded
from gyre.sim.hardware_profile import HardwareProfile
from gyre.sim.run import Run
from gyre.sim.serving import EngineMeters, EngineSpec
from gyre.trajectory.call import CallRecord, Finish, Placement
from gyre.trajectory.call_log import CallLogWriter
from gyre.trajectory.execution import ExecutionRecord
from gyre.workload.compile import compile_program
from gyre.workload.importers.assemble import assemble
from gyre.workload.importers.drafts import DraftCall, DraftExecution
from gyre.workload.program import Program
from gyre.workload.schema import Relation
from gyre.workload.trace import Trace

Ids = npt.NDArray[np.int32]
Noise = Callable[[float], float]  # seconds of an iteration or a prefill -> those that it takes


def small_workload(groups: int, size: int, *, seed: int = 0, turns: int = 4) -> Trace:
    """Executions of several turns, each with what a tool gave appended; waits and lengths vary."""
    draw = np.random.default_rng(seed)
    drafts = []
    for group in range(groups):
        prompt = int(draw.integers(20, 200))
        for member in range(size):
            draft = DraftExecution(f"{group * size + member}-0", "test", group_id=str(group), reward=float(member % 2))
            draft.setup_s, draft.scoring_s = float(draw.uniform(0.1, 1.0)), float(draw.uniform(0.1, 2.0))
            now_s = 0.0
            for turn in range(turns):
                before = draft.calls[-1] if turn else None
                shared = before.context_tokens if before else 0
                call = DraftCall(
                    thread=0,
                    input_tokens=shared + (int(draw.integers(5, 120)) if turn else prompt),
                    output_tokens=int(draw.integers(2, 40)),
                    parent=before,
                    relation=Relation.APPEND if before else Relation.ROOT,
                    prefix_tokens=shared,
                    start_s=now_s,
                    model_s=0.0,
                    finish_reason="stop",
                )
                now_s += float(draw.uniform(0.2, 3.0))
                draft.calls.append(call)
            draft.count_time_from_first_call()
            drafts.append(draft)
    return assemble(drafts)


class RecordingOracle(Oracle):
    """The oracle of the serving model, which also notes what a proxy and its engines would say of each call."""

    def __init__(self, program: Program, engines: Sequence[EngineSpec], *, rebalance: float = 1.5) -> None:
        super().__init__(program, engines, rebalance=rebalance)
        self.records: list[CallRecord] = []
        self.noise: Noise = lambda seconds: seconds
        self._begun: dict[int, float] = {}
        self._arrived: dict[Request, float] = {}
        self._first: dict[Request, float] = {}
        self._cached: dict[Request, int] = {}
        self._places: dict[Request, list[tuple[str, float, int]]] = {}
        self._contexts: dict[tuple[int, int], Ids] = {}
        self._next_id: dict[int, int] = {}

    def start(self, execution: int, template: int, **times: float) -> None:
        self._begun[execution] = self.now_s
        super().start(execution, template, **times)

    def enqueue(self, request: Request) -> None:
        self._arrived.setdefault(request, self.now_s)
        if request.engine is not None:
            place = (f"http://engine-{request.engine.index}", self.now_s, request.generated)
            self._places.setdefault(request, []).append(place)
        super().enqueue(request)

    def cached(self, engine: Engine, request: Request) -> int:
        self._cached[request] = super().cached(engine, request)
        return self._cached[request]

    def end_work(self, engine: Engine) -> None:
        if engine.work == "prefill":
            for request in engine.filling:
                self._first.setdefault(request, self.now_s)
        super().end_work(engine)

    def begin(self, engine: Engine, work: str, duration_s: float) -> None:
        super().begin(engine, work, self.noise(duration_s))

    def finish(self, request: Request) -> None:
        self.records.append(self._record(request, request.execution))
        super().finish(request)

    def meters(self, index: int) -> EngineMeters:  # type: ignore[override]
        return EngineMeters(**super().meters(index))

    def _record(self, request: Request, execution: Execution) -> CallRecord:
        input_ids, output_ids = self._ids(request, execution)
        begun_s, arrived_s = self._begun[execution.id], self._arrived[request]
        return CallRecord(
            execution=f"{execution.id}-0",
            call_id=f"call-{request.call}",
            sequence=sum(record.execution == f"{execution.id}-0" for record in self.records),
            input_ids=input_ids,
            output_ids=output_ids,
            logprobs=np.full(request.output, -1.0, np.float32),
            versions=np.zeros(request.output, np.int32),
            finish=Finish.STOP,
            role=Role.MAIN,
            start_s=arrived_s - begun_s,
            queued_s=arrived_s - begun_s,
            first_s=self._first[request] - begun_s,
            end_s=self.now_s - begun_s,
            cached_tokens=self._cached[request],
            placements=tuple(Placement(name, at_s - begun_s, tokens) for name, at_s, tokens in self._places[request]),
        )

    def _ids(self, request: Request, execution: Execution) -> tuple[Ids, Ids]:
        """Tokens that no other call has, behind what its prefix call had."""
        parent = int(self.program.prefix_call[execution.row + request.call])
        known = self._contexts[execution.id, parent][: request.prefix] if parent >= 0 else np.zeros(0, np.int32)
        first = self._next_id.get(execution.id, 1)
        fresh = np.arange(first, first + request.input - len(known) + request.output, dtype=np.int32)
        self._next_id[execution.id] = first + len(fresh)
        context = np.concatenate((known, fresh)).astype(np.int32)
        self._contexts[execution.id, request.call] = context
        return context[: request.input].copy(), context[request.input :].copy()


def record_evaluations(path: Path, entries: list[Entry], program: Program, settings: RunSettings) -> None:
    """Write what each evaluation took; groups are those of the trace in their order, so executions are its rows."""
    size = settings.training.group_size
    with EvaluationLog(path) as log:
        for entry in entries:
            if isinstance(entry, ExecutionScored):
                row = entry.execution % (size * len(program.group_ids))
                key = EvaluationKey(f"{entry.execution}-0", entry.attempt, "state", "known", "evaluator")
                log.append(Recorded(key, Evaluation(True, 1.0, seconds=float(program.scoring_s[row]))))


def record_run(
    folder: Path,
    settings: RunSettings,
    trace: Trace,
    hardware: HardwareProfile,
    monkeypatch: Any,
    *,
    noise: Noise = lambda seconds: seconds,
    change: Callable[[list[Entry]], list[Entry]] = lambda entries: entries,
    evaluations: bool = False,
) -> list[Entry]:
    """Simulate a run by the oracle and write what a real one would leave; `change` is made to the journal.

    With `evaluations` what each took is recorded apart from the waits for an evaluator.
    """
    made: list[RecordingOracle] = []

    def serving_model(*arguments: Any, **keys: Any) -> RecordingOracle:
        made.append(RecordingOracle(*arguments, **keys))
        made[-1].noise = noise
        return made[-1]

    entries: list[Entry] = []
    with monkeypatch.context() as patched:
        patched.setattr(gyre.sim.cluster, "ServingModel", serving_model)
        Run(settings, compile_program(trace), hardware).simulate(entries.append)
    entries = change(entries)
    folder.mkdir()
    header = settings.model_dump(mode="json", exclude={"workload", "cluster", "faults"}, exclude_none=True)
    if evaluations:
        header["evaluator"] = {"jobs": settings.cluster.evaluators}
        record_evaluations(folder / "evaluations.jsonl", entries, compile_program(trace), settings)
    with JournalWriter(folder / "journal.jsonl", Header(header)) as journal:
        for entry in entries:
            journal.append(entry)
    with CallLogWriter(folder / "calls" / "proxy.calls") as log:
        for record in made[0].records:
            log.append(record)
        for name in dict.fromkeys(record.execution for record in made[0].records):
            log.append_execution(ExecutionRecord(name, name, task="a task"))
    return entries
