"""`gyre samples export`: that files hold what the library makes, what is printed, and how bad input ends."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from samples_command import BAD_INPUT, EXECUTIONS, calls_of, ok, refused, refused_in

from gyre.trajectory import (
    Baseline,
    CallLogWriter,
    ExecutionRecord,
    Selection,
    TrajectoryStore,
    make_samples,
)
from gyre.trajectory.exchange import formats, load, read


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
        (("export", "missing", "--to", "slime", "--out", "a.jsonl"), "missing"),
        (("export", "STORE", "--to", "nobody", "--out", "a.jsonl"), "no such format"),
        (("export", "STORE", "--to", "slime", "--out", "a.txt"), "ends in .jsonl or .parquet"),
        (("export", "STORE", "--to", "slime"), "give the file for the samples with --out"),
        (("export", "STORE", "--to", "slime", "--out", "a.jsonl", "--group", "q"), "--group q: not in"),
        (("export", "STORE", "--to", "slime", "--out", "a.jsonl", "--baseline", "median"), "no such baseline"),
        (("export", "STORE", "--to", "slime", "--out", "a.jsonl", "--set", "x"), "expected KEY=VALUE"),
        (("export", "STORE", "--to", "slime", "--out", "a.jsonl", "--token-budget", "0"), "--token-budget"),
        (("export", "STORE", "--to", "slime", "--out", "no/such/a.jsonl"), "cannot be written"),
        (("export", "STORE", "--to", "lists", "--dry-run", "--set", "zzz=1"), "format lists has no option zzz"),
        (("export", "STORE", "--to", "slime", "--dry-run", "--group", "a", "--group", "a"), "--group a: given twice"),
        (
            ("export", "STORE", "--to", "slime", "--out", "a.jsonl", "--max-tokens", "9" * 20),
            "max_tokens: Input should",
        ),
        (("export", "STORE", "--to", "slime", "--out", "a.jsonl", "--seed", "9" * 20), "seed: Input should be less"),
    ],
)
def test_bad_input_of_export_ends_with_code_2_and_one_line(
    arguments: tuple[str, ...], says: str, store: Path, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert says in refused_in(tmp_path, arguments, STORE=store, LOG=log)


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


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_a_disk_without_room_ends_in_one_line_and_leaves_nothing(suffix: str, store: Path, tmp_path: Path) -> None:
    most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, most[1]))
    try:
        said = refused("export", store, "--to", "lists", "--out", tmp_path / f"a{suffix}")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, most)
    assert f"a{suffix}: cannot be written (" in said
    assert list(tmp_path.iterdir()) == []


def test_output_without_room_is_said_without_advice_that_the_command_lacks(store: Path) -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-c", "from gyre.cli import main; main()", "samples", "inspect", str(store)]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == BAD_INPUT
    assert done.stderr.startswith("gyre: output: no space left on the disk; free some, then run it again")
    assert len(done.stderr.splitlines()) == 1
