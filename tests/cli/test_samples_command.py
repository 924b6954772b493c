"""`gyre samples`: what each command writes and prints, and how bad input ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from gyre.cli import main
from gyre.trajectory import (
    Baseline,
    CallLogWriter,
    CallRecord,
    ExecutionRecord,
    RecordedCalls,
    Selection,
    TrajectoryStore,
    make_samples,
)
from gyre.trajectory.exchange import formats, load, read

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


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_log(tmp_path_factory.mktemp("log") / "run.calls")


@pytest.fixture(scope="module")
def store(log: Path) -> Path:
    out = log.parent / "store"
    ok("build", log, "--out", out)
    return out


def test_build_says_what_was_built(log: Path, tmp_path: Path) -> None:
    said = ok("build", log, "--out", tmp_path / "s")
    assert "6 executions in 2 groups, 24 calls" in said
    assert "unique tokens" in said
    assert "refused: 6 × missing logprobs" in said
    assert f"gyre samples inspect {tmp_path / 's'} says in which" in said


def test_build_prints_json_for_machines(log: Path, tmp_path: Path) -> None:
    said = json.loads(ok("build", log, "--out", tmp_path / "s", "--json"))
    assert (said["executions"], said["groups"], said["calls"], said["refused"]) == (6, 2, 24, 6)
    assert said["refused_by_reason"] == {"missing_logprobs": 6}
    assert said["bytes_per_unique_token"] == pytest.approx(said["bytes"] / said["unique_tokens"])


def test_a_store_is_not_overwritten_without_being_told(log: Path, tmp_path: Path) -> None:
    out = tmp_path / "s"
    ok("build", log, "--out", out)
    before = sorted((file.name, file.read_bytes()) for file in out.iterdir())
    assert "--resume, or replace it by --force" in refused("build", log, "--out", out)
    assert sorted((file.name, file.read_bytes()) for file in out.iterdir()) == before
    assert json.loads(ok("build", log, "--out", out, "--resume", "--json"))["there_before"] == 6
    assert json.loads(ok("build", log, "--out", out, "--force", "--json"))["built"] == 6
    other = tmp_path / "mine"
    other.mkdir()
    (other / "file").write_text("mine")
    assert "holds file" in refused("build", log, "--out", other, "--force")
    assert (other / "file").read_text() == "mine"


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_scores_come_from_a_table(suffix: str, tmp_path: Path) -> None:
    import polars as pl

    log = write_log(tmp_path / "run.calls", scores=False)
    assert "no execution has ended" in refused("build", log, "--out", tmp_path / "s")
    found = [1.0, 0.5, None, 0.0, 1.0]
    table = pl.DataFrame({"execution": [*EXECUTIONS[:4], "x"], "group": list("aaabx"), "score": found})
    scores = tmp_path / f"scores{suffix}"
    {".csv": table.write_csv, ".jsonl": table.write_ndjson, ".parquet": table.write_parquet}[suffix](scores)
    result = run("build", log, "--out", tmp_path / "s", "--scores", scores)
    assert result.exit_code == 0, result.output
    assert "4 executions in 2 groups" in result.stdout
    assert "1 executions have no valid score" in result.stdout
    assert "left out: 2 executions" in result.stdout
    assert "b/1, b/2" in result.stdout
    assert "1 executions with a score (x)" in result.stdout
    frame = TrajectoryStore.open(tmp_path / "s").executions()
    assert frame["score"].to_list() == [1.0, 0.5, None, 0.0]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("execution,score\n", "no execution has ended"),
        ("execution,score\na/0,1\n", "has a score and no group"),
        ("execution,points\na/0,1\n", "no column 'score'"),
        ("execution,group,score\na/0,a,1\na/0,a,0\n", "row 2: execution is given twice"),
        ("execution,group,score\n,a,1\n", "row 1: execution is empty"),
        ("execution,group,score\na/0,a,good\n", "row 1: score is 'good'"),
        ("execution,group,score\na/0,a,inf\n", "give a finite number"),
    ],
)
def test_bad_scores_end_in_one_line_and_write_nothing(text: str, says: str, tmp_path: Path) -> None:
    log = write_log(tmp_path / "run.calls", scores=False)
    scores = tmp_path / "scores.csv"
    scores.write_text(text)
    assert says in refused("build", log, "--out", tmp_path / "s", "--scores", scores)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["run.calls", "scores.csv"]


def test_calls_come_from_json_lines_too(log: Path, store: Path, tmp_path: Path) -> None:
    source = tmp_path / "calls.jsonl"
    lines = []
    for number, execution in enumerate(EXECUTIONS):
        for call in calls_of(execution):
            row: dict[str, Any] = {
                "execution": execution,
                "call_id": call.call_id,
                "thread": call.thread,
                "prompt_token_ids": call.input_ids.tolist(),
                "token_ids": call.output_ids.tolist(),
            }
            if call.logprobs is not None:
                row["logprobs"] = call.logprobs.tolist()
            if call.versions is not None:
                row["versions"] = call.versions.tolist()
            lines.append(row)
        lines.append({"execution": execution, "group": execution[0], "score": number % 2})
    source.write_text("\n".join(map(json.dumps, lines)))
    ok("build", source, "--out", tmp_path / "s")
    assert ok("inspect", tmp_path / "s", "--json") == ok("inspect", store, "--json") == ok("inspect", source, "--json")


def test_inspect_lists_executions_of_a_store_and_of_a_log(log: Path, store: Path) -> None:
    table = ok("inspect", store)
    assert all(execution in table for execution in EXECUTIONS)
    assert "6 executions" in table
    rows = json.loads(ok("inspect", store, "--json"))
    assert rows == json.loads(ok("inspect", log, "--json"))
    assert [row["refused"] for row in rows] == [1] * 6


def test_inspect_draws_one_execution(log: Path, store: Path, tmp_path: Path) -> None:
    text = ok("inspect", store, "a/1")
    assert text == ok("inspect", log, "a/1")
    assert "4 calls (1 more refused)" in text
    assert "missing logprobs" in text
    page = tmp_path / "tree.html"
    assert f"page: {page}" in ok("inspect", store, "a/1", "--html", page)
    assert "<title>gyre: a/1</title>" in page.read_text()
    assert "exists already" in refused("inspect", store, "a/1", "--html", page)
    facts = json.loads(ok("inspect", store, "a/1", "--html", page, "--force", "--json"))
    assert facts["execution"] == "a/1"
    assert [row["reason"] for row in facts["refused"]] == ["missing_logprobs"]
    assert [file.name for file in tmp_path.iterdir()] == ["tree.html"]


@pytest.mark.parametrize(
    ("flags", "selected"),
    [
        ((), 2),
        (("--max-paths", 1), 1),
        (("--select", "main_only"), 1),
        (("--select", "all", "--dedup", "segment"), 2),
        (("--max-tokens", 12, "--over-length", "drop"), 1),
        (("--max-tokens", 12, "--seed", 3), 2),
        (("--select", "chosen_leaves:last"), 1),
    ],
)
def test_inspect_shows_what_a_selection_takes(
    flags: tuple[object, ...], selected: int, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "chosen_leaves.py").write_text("def last(tree, selection):\n    return [len(tree.leaf_node) - 1]\n")
    monkeypatch.chdir(tmp_path)
    facts = json.loads(ok("inspect", store, "a/1", "--json", *flags))
    assert sum(leaf["selected"] is not None for leaf in facts["leaves"]) == selected


def test_inspect_all_and_depth(store: Path) -> None:
    short, full = ok("inspect", store, "a/0"), ok("inspect", store, "a/0", "--all")
    assert len(full.splitlines()) > len(short.splitlines())
    assert len(ok("inspect", store, "a/0", "--depth", 0).splitlines()) <= len(short.splitlines())


def test_inspect_shows_text_where_a_tokenizer_is_given(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class AutoTokenizer:
        @classmethod
        def from_pretrained(cls, name: str) -> AutoTokenizer:
            if name != "known":
                raise OSError(f"{name} is not a local folder\nand not a model")
            return cls()

        def decode(self, ids: list[int], **_: Any) -> str:
            return f"<{len(ids)} tokens of text>"

    monkeypatch.setitem(sys.modules, "transformers", SimpleNamespace(AutoTokenizer=AutoTokenizer))
    page = tmp_path / "a.html"
    assert "tokens of text>" in ok("inspect", store, "a/0", "--tokenizer", "known", "--html", page)
    assert "tokens of text" in page.read_text()
    assert "--tokenizer unknown: cannot be loaded" in refused("inspect", store, "a/0", "--tokenizer", "unknown")
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert "needs the package transformers" in refused("inspect", store, "a/0", "--tokenizer", "known")


@pytest.mark.parametrize("format_name", [name for name in formats() if name != "torch"])
@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_export_writes_what_the_library_makes(format_name: str, suffix: str, store: Path, tmp_path: Path) -> None:
    out = tmp_path / f"samples{suffix}"
    said = json.loads(ok("export", store, "--to", format_name, "--out", out, "--select", "all", "--json"))
    opened = TrajectoryStore.open(store)
    samples = make_samples(opened.read_all(EXECUTIONS), Selection(mode="all"), Baseline.MEAN)
    found = load(read(format_name, out), format_name)
    assert sorted(found.loss_weights()[found.loss_mask]) == pytest.approx(
        sorted(samples.loss_weights()[samples.loss_mask]), rel=1e-5
    )
    assert (said["samples"], said["tokens"]) == (samples.rows, len(samples.tokens))
    assert said["executions"] == samples.executions.counted == 6


def test_export_reports_savings_and_dropped(store: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.jsonl"
    said = ok("export", store, "--to", "slime", "--out", out, "--token-budget", 64)
    assert "12 samples of 6 executions in the fields of slime" in said
    assert "packed, shared prefixes once" in said
    assert "micro-steps of at most 64 tokens" in said
    saved = json.loads(ok("export", store, "--to", "slime", "--out", out, "--force", "--json"))["savings"]
    assert saved["trees"]["tokens"] <= saved["rows"]["tokens"] == saved["selected"]["tokens"] < saved["calls"]["tokens"]


def test_export_of_some_groups_is_a_step_of_its_own(store: Path, tmp_path: Path) -> None:
    said = json.loads(ok("export", store, "--to", "lists", "--out", tmp_path / "a.jsonl", "--group", "b", "--json"))
    assert said["executions"] == 3
    assert {row["group"] for row in map(json.loads, (tmp_path / "a.jsonl").read_text().splitlines())} == {"b"}


def test_export_hands_options_to_the_format(store: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.jsonl"
    ok("export", store, "--to", "prime-rl", "--out", out, "--set", "temperature=0.7", "--baseline", "leave_one_out")
    assert json.loads(out.read_text().splitlines()[0])["temperatures"][0] == 0.7
    assert "no option heat" in refused("export", store, "--to", "prime-rl", "--out", out, "--force", "--set", "heat=1")
    assert json.loads(out.read_text().splitlines()[0])["temperatures"][0] == 0.7


def test_a_dry_run_prints_resolved_settings_and_writes_nothing(store: Path, tmp_path: Path) -> None:
    import tomllib

    found = tomllib.loads(ok("export", store, "--to", "verl", "--dry-run", "--max-paths", 2, "--seed", 5))
    assert found["selection"]["max_paths"] == 2
    assert found["groups"] == ["a", "b"]
    as_json = json.loads(ok("export", store, "--to", "verl", "--dry-run", "--max-paths", 2, "--seed", 5, "--json"))
    assert as_json == found
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("build", "missing", "--out", "s"), "cannot be read"),
        (("build", "STORE", "--out", "s"), "holds no call log"),
        (("build", "LOG", "--out", "s", "--scores", "scores.txt"), "not a table of scores"),
        (("build", "LOG", "--out", "s", "--scores", "scores.csv"), "cannot be read"),
        (("inspect", "missing"), "cannot be read"),
        (("inspect", "STORE", "z/9"), "no execution 'z/9'"),
        (("inspect", "LOG", "z/9"), "no execution 'z/9'"),
        (("inspect", "STORE", "--html", "a.html"), "--html draws one execution"),
        (("inspect", "STORE", "a/0", "--select", "best"), "no selection 'best'"),
        (("inspect", "STORE", "a/0", "--select", "nowhere:at_all"), "cannot be loaded"),
        (("inspect", "STORE", "a/0", "--max-paths", "0"), "max_paths"),
        (("inspect", "STORE", "a/0", "--over-length", "wrap"), "over_length"),
        (("inspect", "STORE", "a/0", "--dedup", "word"), "dedup"),
        (("inspect", "STORE", "a/0", "--max-tokens", "1"), "max_tokens"),
        (("export", "missing", "--to", "slime", "--out", "a.jsonl"), "missing"),
        (("export", "STORE", "--to", "nobody", "--out", "a.jsonl"), "no such format"),
        (("export", "STORE", "--to", "slime", "--out", "a.txt"), "ends in .jsonl or .parquet"),
        (("export", "STORE", "--to", "slime"), "give the file for the samples with --out"),
        (("export", "STORE", "--to", "slime", "--out", "a.jsonl", "--group", "q"), "--group q: not in"),
        (("export", "STORE", "--to", "slime", "--out", "a.jsonl", "--baseline", "median"), "no such baseline"),
        (("export", "STORE", "--to", "slime", "--out", "a.jsonl", "--set", "x"), "expected KEY=VALUE"),
        (("export", "STORE", "--to", "slime", "--out", "a.jsonl", "--token-budget", "0"), "--token-budget"),
        (("export", "STORE", "--to", "slime", "--out", "no/such/a.jsonl"), "cannot be written"),
    ],
)
def test_bad_input_ends_with_code_2_and_one_line(
    arguments: tuple[str, ...], says: str, store: Path, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    places = {"STORE": str(store), "LOG": str(log)}
    assert says in refused(*(places.get(word, word) for word in arguments))
    assert list(tmp_path.iterdir()) == []


def test_a_step_without_anything_to_train_on_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "run.calls"
    with CallLogWriter(log) as writer:
        writer.append(calls_of("a/0")[0])
        writer.append_execution(ExecutionRecord("a/0", "a", None))
    ok("build", log, "--out", tmp_path / "s")
    assert "nothing to train on (1 × no valid score)" in refused(
        "export", tmp_path / "s", "--to", "slime", "--out", tmp_path / "a.jsonl"
    )
    assert not (tmp_path / "a.jsonl").exists()


def test_a_damaged_log_is_reported_and_the_rest_is_built(tmp_path: Path) -> None:
    log = write_log(tmp_path / "run.calls")
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size - 7)
    said = ok("build", log, "--out", tmp_path / "s")
    assert "5 executions" in said
    assert "left out: 1 executions" in said
    assert f"{log}: " in said.splitlines()[-1]


def test_as_a_process_it_keeps_stdout_for_json_and_stderr_for_one_line(log: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from gyre.cli import main; main()", "samples"]
    done = subprocess.run(
        [*command, "build", str(log), "--out", str(tmp_path / "s"), "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["executions"] == 6
    assert done.stderr == ""
    bad = subprocess.run([*command, "inspect", str(tmp_path / "none")], capture_output=True, text=True, check=False)
    assert (bad.returncode, bad.stdout) == (BAD_INPUT, "")
    assert bad.stderr.startswith("gyre: ")
    assert len(bad.stderr.splitlines()) == 1


def test_an_interrupt_leaves_a_store_that_resume_goes_on_with(
    log: Path, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = RecordedCalls.read
    asked: list[str] = []

    def interrupting(calls: RecordedCalls, execution: str) -> Any:
        if execution == "b/1" and not asked:
            asked.append(execution)
            os.kill(os.getpid(), signal.SIGINT)
        return read(calls, execution)

    monkeypatch.setattr(RecordedCalls, "read", interrupting)
    result = run("build", log, "--out", tmp_path / "s")
    assert result.exit_code == 130
    assert result.stdout == ""
    assert "stopped with 3 executions" in result.stderr
    assert list(TrajectoryStore.open(tmp_path / "s").groups()) == ["a"]
    said = json.loads(ok("build", log, "--out", tmp_path / "s", "--resume", "--json"))
    assert (said["there_before"], said["built"]) == (3, 3)
    assert ok("inspect", tmp_path / "s", "--json") == ok("inspect", store, "--json")
