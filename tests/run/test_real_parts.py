"""A run with real parts end to end: proxy, harness processes, evaluator processes, samples on disk."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

for package in ("aiohttp", "prometheus_client", "starlette", "transformers", "uvicorn"):
    pytest.importorskip(package, reason="the proxy needs the extra gyre[proxy]")

from ledger import LedgerCells, LedgerTraining, read_ledger  # noqa: E402
from local_run import Plan, tasks_of  # noqa: E402
from proxy_bench import QUICK, QUICK_SETTINGS, renderer_of  # noqa: E402

from gyre.backends.engines.engine import Generation  # noqa: E402
from gyre.backends.engines.pool import EnginePool  # noqa: E402
from gyre.backends.engines.scripted import ScriptedEngine  # noqa: E402
from gyre.backends.proxy.proxy import Proxy  # noqa: E402
from gyre.backends.proxy.tokens import Renderer  # noqa: E402
from gyre.backends.run.attempts import Attempts  # noqa: E402
from gyre.backends.run.book import RunBook  # noqa: E402
from gyre.backends.run.command_rollouts import CommandRollouts  # noqa: E402
from gyre.backends.run.driver import RealCluster  # noqa: E402
from gyre.backends.run.evaluations import ScoredEvaluations  # noqa: E402
from gyre.backends.run.harness_command import HarnessCommand  # noqa: E402
from gyre.backends.run.ports import Ports  # noqa: E402
from gyre.backends.run.proxy_gateway import ProxyGateway  # noqa: E402
from gyre.backends.run.run_journal import RunJournal  # noqa: E402
from gyre.backends.run.samples import StoredSamples  # noqa: E402
from gyre.buffer.storage import GroupStorage  # noqa: E402
from gyre.cli import main  # noqa: E402
from gyre.events import ExecutionFinished, ExecutionScored  # noqa: E402
from gyre.journal import Entry, Header  # noqa: E402
from gyre.report import ResultsFolder, read_run  # noqa: E402
from gyre.report.folder import JOURNAL  # noqa: E402
from gyre.report.journal_file import JournalReader  # noqa: E402
from gyre.scoring.evaluation_log import EvaluationLog  # noqa: E402
from gyre.scoring.making import make_scorer  # noqa: E402
from gyre.scoring.settings import evaluator_settings  # noqa: E402
from gyre.trajectory.call_log import CallLog  # noqa: E402
from gyre.trajectory.selection import Mode, Selection  # noqa: E402
from gyre.trajectory.store.part import Item  # noqa: E402

HARNESS = (sys.executable, "-I", "-S", str(Path(__file__).with_name("loop_harness.py")), "{prompt_file}")
# Right where the file says what the task said; GYRE_SUBJECT names a file with the execution and its task.
JUDGE = (
    "import json, os, pathlib; subject = json.loads(pathlib.Path(os.environ['GYRE_SUBJECT']).read_text());"
    "answer = pathlib.Path('answer.txt').read_text();"
    "raise SystemExit(0 if answer == 'task ' + subject['task'] else 1)"
)
PLAN = Plan(steps=2, capacity=3)


def writes_then_stops(renderer: Renderer) -> Callable[[Generation], Sequence[int]]:
    """A model that writes the task into a file, wrongly for task 1, and then says that it is done."""

    def script(generation: Generation) -> Sequence[int]:
        own = generation.input_ids[: len(generation.input_ids) - generation.continued_tokens]
        text = renderer.tokenizer.decode(own.tolist())
        task = re.search(r"task (\d+)", text)
        assert task is not None
        content = "task 0" if task[1] == "1" else task[0]
        call = {"name": "write_file", "arguments": {"path": "answer.txt", "content": content}}
        said = "Done." if "<tool_response>" in text else f"<tool_call>\n{json.dumps(call)}\n</tool_call>"
        return [*renderer.tokenizer.encode(said, add_special_tokens=False), renderer.tokenizer.eos_token_id]

    return script


class WatchedTraining(LedgerTraining):
    """Keeps what it was given to train."""

    def __init__(self, path: Path, samples: Any) -> None:
        self.items: list[Item] = []

        async def watched(group: int) -> list[Item]:
            found: list[Item] = await samples(group)
            self.items += found
            return found

        super().__init__(path, watched)


async def drive(folder: Path, results: ResultsFolder, renderer: Renderer) -> WatchedTraining:
    """Make the run."""
    controller, book = PLAN.controller(), RunBook(tasks_of())
    journal = RunJournal.open(results, controller, book)
    engines = [ScriptedEngine(name, writes_then_stops(renderer)) for name in ("one", "two")]
    with ExitStack() as files:
        storage = files.enter_context(GroupStorage(folder / "samples"))
        log = files.enter_context(EvaluationLog(folder / "evaluations.jsonl"))
        judge = evaluator_settings({"kind": "command", "command": [sys.executable, "-I", "-S", "-c", JUDGE]})
        async with AsyncExitStack() as stack:
            pool = await stack.enter_async_context(EnginePool(checks=QUICK))
            for engine in engines:
                pool.add(engine)
            proxy = await stack.enter_async_context(Proxy(renderer, pool, folder / "calls", QUICK_SETTINGS))
            gateway, attempts = ProxyGateway(proxy), Attempts(folder / "executions")
            stack.callback(gateway.close)
            samples = StoredSamples(storage, gateway, Selection(mode=Mode.ALL), harness="loop")
            stack.callback(samples.close)
            training = WatchedTraining(folder / "ledger.json", samples.group)
            ports = Ports(
                CommandRollouts(HarnessCommand(HARNESS, name="loop"), gateway, attempts, keep_folders=True),
                ScoredEvaluations(make_scorer(judge, jobs=2, log=log)),
                samples,
                LedgerCells(training, capacity=PLAN.capacity),
                training,
            )
            assert await RealCluster(journal, ports).run()
    return training


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, WatchedTraining]:
    """A finished run's folder, and its trainer."""
    folder = tmp_path_factory.mktemp("real") / "run"
    renderer = renderer_of(tmp_path_factory.getbasetemp() / "proxy-tokenizer")
    with ResultsFolder.create(folder, PLAN.header) as results:
        return folder, asyncio.run(drive(folder, results, renderer))


def entries(folder: Path) -> list[Entry]:
    return [entry for entry in JournalReader(folder / JOURNAL) if not isinstance(entry, Header)]


def test_harnesses_run_are_judged_and_their_groups_are_trained(run: tuple[Path, WatchedTraining]) -> None:
    folder, _ = run
    finished = [entry for entry in entries(folder) if isinstance(entry, ExecutionFinished)]
    assert {entry.outcome for entry in finished} == {"completed"}
    assert {entry.tool_calls for entry in finished} == {1}
    scores = {entry.execution: entry.score for entry in entries(folder) if isinstance(entry, ExecutionScored)}
    # Two executions a group, group n has task n modulo 5; task 1 is done wrongly.
    assert scores == {execution: 0.0 if execution // 2 == 1 else 1.0 for execution in range(8)}
    assert [[group for group, _ in update] for update in map(sorted, read_ledger(folder / "ledger.json"))] == [
        [0, 1],
        [2, 3],
    ]


def test_what_is_trained_is_what_the_proxy_recorded(run: tuple[Path, WatchedTraining]) -> None:
    folder, training = run
    with CallLog(folder / "calls" / "proxy.calls") as log:
        for record, tree in training.items:
            calls = list(log.calls(record.execution))
            assert len(calls) == 2
            recorded = np.concatenate([call.output_ids for call in calls])
            owned = np.repeat(tree.node_owner >= 0, np.diff(tree.node_start))
            np.testing.assert_array_equal(tree.tokens[owned], recorded)
            sampled = sum(entry.sample_tokens[0] for entry in entries(folder) if _scores(entry, record.execution))
            assert sampled == len(calls[-1].input_ids) + len(calls[-1].output_ids)


def _scores(entry: Entry, name: str) -> bool:
    return isinstance(entry, ExecutionScored) and str(entry.execution) == name.partition("-")[0]


def test_the_journal_is_a_run_that_the_report_shows(run: tuple[Path, WatchedTraining]) -> None:
    folder, _ = run
    record = read_run(folder).record
    assert record.complete
    assert record.problems == {}
    assert record.steps.height == PLAN.steps
    result = CliRunner().invoke(main, ["report", str(folder), "--json"], catch_exceptions=False)
    assert result.exit_code == 0
    assert json.loads(result.stdout)["groups"]["consumed"] == 4
    assert (folder / "report.html").stat().st_size > 0


def test_a_harness_gets_a_home_of_its_own_and_leaves_its_artefacts(run: tuple[Path, WatchedTraining]) -> None:
    folder, _ = run
    for execution in range(8):
        attempt = folder / "executions" / str(execution) / "0"
        assert (attempt / "work" / "answer.txt").read_text().startswith("task ")
        assert (attempt / "home").is_dir()
        assert (attempt / "output.log").read_text() == "Done.\n"
