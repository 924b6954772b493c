"""`gyre samples` run in this process, and small recorded executions to run it on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from click.testing import CliRunner, Result

from gyre.cli import main
from gyre.trajectory import CallLogWriter, CallRecord, ExecutionRecord

BAD_INPUT = 2
EXECUTIONS = [f"{group}/{number}" for group in ("a", "b") for number in range(3)]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["samples", *map(str, arguments)])


def ok(*arguments: object) -> str:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(*arguments: object) -> str:
    result = run(*arguments)
    assert result.exit_code == BAD_INPUT, result.output
    assert "Traceback" not in result.stderr
    return result.stderr.strip().splitlines()[-1]


def refused_in(folder: Path, arguments: tuple[str, ...], **places: Path) -> str:
    """What a refused command says; words that are names of `places` stand for those, and `folder` stays empty."""
    said = refused(*(places.get(word, word) for word in arguments))
    assert list(folder.iterdir()) == []
    return said


def calls_of(execution: str, turns: int = 4) -> list[CallRecord]:
    """A main conversation whose third turn is recorded without log-probabilities, and a sub-agent of one call."""
    rng = np.random.default_rng(EXECUTIONS.index(execution))
    context, calls = np.arange(100, 110, dtype=np.int32), []
    for number in range(turns):
        output = rng.integers(1000, 2000, 5).astype(np.int32)
        call = CallRecord(
            execution, f"c{number}", number, context, output, np.full(5, -0.5, np.float32), np.full(5, number, np.int32)
        )
        calls.append(replace(call, thread="main", logprobs=None if number == 2 else call.logprobs))
        context = np.concatenate([context, output, rng.integers(3000, 4000, 3).astype(np.int32)])
    helper = np.array([9, 9, 9], np.int32)
    calls.append(
        CallRecord(execution, "helper", turns, helper, helper + 1, np.full(3, -1, np.float32), thread="helper")
    )
    return calls


def write_log(path: Path, *, scores: bool = True) -> Path:
    with CallLogWriter(path) as log:
        for number, execution in enumerate(EXECUTIONS):
            for call in calls_of(execution):
                log.append(call)
            if scores:
                log.append_execution(ExecutionRecord(execution, execution[0], float(number % 2)))
    return path
