"""`gyre samples build` where a store is there already: going on with it, and replacing it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from samples_command import EXECUTIONS, calls_of, ok, refused, write_log

from gyre.folder_lock import FolderLock
from gyre.trajectory import CallLogWriter, ExecutionRecord, RecordedCalls, TrajectoryStore


@pytest.fixture
def out(store: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(store, tmp_path / "out"))


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_force_leaves_files_that_are_not_the_stores(log: Path, store: Path, out: Path) -> None:
    (out / "notes.txt").write_text("mine")
    (out / "exports").mkdir()
    (out / "exports" / "samples.jsonl").write_text("{}")
    assert json.loads(ok("build", log, "--out", out, "--force", "--json"))["built"] == 6
    assert (out / "notes.txt").read_text() == "mine"
    assert (out / "exports" / "samples.jsonl").exists()
    assert ok("inspect", out, "--json") == ok("inspect", store, "--json")
    assert len(files(out)) == 6


@pytest.mark.parametrize("inside", ["run.calls", "logs/run.calls"])
@pytest.mark.parametrize("option", ["--force", "--resume", "--json"])
def test_a_source_in_the_stores_folder_is_refused(log: Path, out: Path, inside: str, option: str) -> None:
    source = out / inside
    source.parent.mkdir(exist_ok=True)
    shutil.copy(log, source)
    before = files(out)
    for given in {source, source.parent}:
        assert "the store's folder" in refused("build", given, "--out", out, option)
    assert files(out) == before


def test_force_waits_for_no_writer(log: Path, out: Path) -> None:
    before = files(out)
    with FolderLock(out):
        for option in ("--force", "--resume"):
            assert "in use by process" in refused("build", log, "--out", out, option)
    assert files(out) == before


def test_force_replaces_a_store_without_manifest_or_of_another_version(log: Path, store: Path, out: Path) -> None:
    manifest = out / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"version": 2', '"version": 1'))
    assert "made by another version of gyre: build it again" in refused("build", log, "--out", out, "--resume")
    ok("build", log, "--out", out, "--force")
    manifest.unlink()
    assert "holds calls-" in refused("build", log, "--out", out)
    ok("build", log, "--out", out, "--force")
    assert ok("inspect", out, "--json") == ok("inspect", store, "--json")
    assert len(files(out)) == 4


def test_force_on_bad_input_keeps_the_old_store(out: Path, tmp_path: Path) -> None:
    source = tmp_path / "calls.jsonl"
    source.write_text("{}\n")
    before = files(out)
    assert "line 1" in refused("build", source, "--out", out, "--force")
    assert files(out) == before


def test_resume_and_force_are_not_given_together(log: Path, out: Path) -> None:
    assert "give one of them" in refused("build", log, "--out", out, "--resume", "--force")


def test_resume_takes_new_scores(log: Path, out: Path, tmp_path: Path) -> None:
    parts = {name: content for name, content in files(out).items() if name.startswith(("nodes", "calls"))}
    scores = tmp_path / "scores.csv"
    scores.write_text("execution,score\na/0,0.25\nb/1,\nb/2,0\n")
    said = ok("build", log, "--out", out, "--resume", "--scores", scores)
    assert "scores changed: 3 executions of those there before" in said
    found = dict(TrajectoryStore.open(out).executions().select("execution", "score").iter_rows())
    assert found == {"a/0": 0.25, "a/1": 1.0, "a/2": 0.0, "b/0": 1.0, "b/1": None, "b/2": 0.0}
    assert parts.items() <= files(out).items()
    again = json.loads(ok("build", log, "--out", out, "--resume", "--scores", scores, "--json"))
    assert (again["scores_changed"], again["built"], again["there_before"]) == (0, 0, 6)


def test_resume_builds_again_what_has_new_calls_or_another_group(out: Path, tmp_path: Path) -> None:
    log = write_log(tmp_path / "run.calls")
    with CallLogWriter(log) as writer:
        writer.append(calls_of("b/1", turns=6)[4])
    scores = tmp_path / "scores.csv"
    scores.write_text("execution,group,score\na/1,c,0.5\n")
    said = json.loads(ok("build", log, "--out", out, "--resume", "--scores", scores, "--json"))
    assert (said["built"], said["built_again"], said["there_before"]) == (2, 2, 4)
    store = TrajectoryStore.open(out)
    assert store.groups() == {"a": ("a/0", "a/2"), "c": ("a/1",), "b": ("b/0", "b/1", "b/2")}
    assert (store.read("a/1")[0].score, len(store.read("b/1")[1].refused)) == (0.5, 2)  # one sequence number twice
    assert store.verify() == []
    assert json.loads(ok("build", log, "--out", out, "--resume", "--scores", scores, "--json"))["built"] == 0


def test_resume_keeps_calls_that_the_source_has_not_any_more(out: Path, tmp_path: Path) -> None:
    log = tmp_path / "rest.calls"
    with CallLogWriter(log) as writer:
        writer.append(calls_of("a/0")[0])
        writer.append_execution(ExecutionRecord("a/0", "other group", 0.0))
    before = files(out)
    said = ok("build", log, "--out", out, "--resume")
    assert f"left as stored: 1 execution (a/0), of which {log} has fewer calls" in said
    assert files(out) == before


def test_calls_without_output_are_no_new_calls(tmp_path: Path) -> None:
    source = tmp_path / "calls.jsonl"
    lines = [
        {"execution": "e", "input_ids": [1], "output_ids": [2], "logprobs": [-1.0]},
        {"execution": "e", "input_ids": [1], "output_ids": [], "logprobs": []},
        {"execution": "e", "group": "g", "score": 1},
    ]
    source.write_text("\n".join(map(json.dumps, lines)))
    said = ok("build", source, "--out", tmp_path / "s")
    assert "1 execution in 1 group, 1 call\n" in said
    again = json.loads(ok("build", source, "--out", tmp_path / "s", "--resume", "--json"))
    assert (again["built"], again["there_before"]) == (0, 1)


def test_problems_of_the_source_are_said_to_machines_too(tmp_path: Path) -> None:
    log = write_log(tmp_path / "run.calls")
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size - 7)
    (problem,) = json.loads(ok("build", log, "--out", tmp_path / "s", "--json"))["problems"]
    assert problem.startswith(f"{log}: ")
    with RecordedCalls(log) as calls:
        assert calls.problems == (problem,)
        assert len(calls.executions()) == len(EXECUTIONS) - 1
