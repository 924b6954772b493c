"""`gyre compare` and `gyre simulate` as a user runs them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner, Result

from gyre.cli import main
from gyre.journal import parse

SMALL = ("--set", "training.groups_per_step=4", "--set", "training.group_size=4", "--cells", "3", "--steps", "6")


@pytest.fixture
def lengths(tmp_path: Path) -> Path:
    """A list of rollout lengths, as many users have: 24 groups of four."""
    path = tmp_path / "lengths.csv"
    rows = [f"g{group},{60 + (37 * group + 101 * member) % 400}" for group in range(24) for member in range(4)]
    path.write_text("group,duration_s\n" + "\n".join(rows) + "\n")
    return path


def gyre(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments], catch_exceptions=False)


def test_compare_leaves_everything_that_it_promises(lengths: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = gyre("compare", "--trace", lengths, *SMALL, "--out", out, "--jobs", 1, "--json")
    assert result.exit_code == 0, result.output
    printed = json.loads(result.stdout)
    assert printed == json.loads((out / "summary.json").read_text())
    assert [row["policy"] for row in printed["policies"]] == ["colocate", "async", "elastic"]
    for row in printed["policies"]:
        assert sum(row["gpu_share"].values()) == pytest.approx(1)
        assert 0 < row["bound"]["fraction"] <= 1
    for name in ("journal.jsonl", "settings.toml", "report.html", "timeline.json", "steps.parquet", "cells.parquet"):
        assert (out / name).stat().st_size > 0
    assert pl.read_parquet(out / "steps.parquet")["policy"].unique(maintain_order=True).to_list() == [
        "colocate",
        "async",
        "elastic",
    ]
    index = [json.loads(line) for line in (out / "journal.jsonl").read_text().splitlines()]
    for line in index[1:]:
        entries = list(parse((out / line["journal"]).read_text().splitlines()))
        assert len(entries) > 100


@pytest.mark.parametrize("staleness", [0.0, 0.5, 1.0, 2.25])
def test_every_policy_has_the_staleness_asked_for(lengths: Path, staleness: float) -> None:
    options = ("--staleness", staleness, "--jobs", 1, "--json")
    result = gyre("compare", "--trace", lengths, *SMALL, "--steps", 60, *options)
    for row in json.loads(result.stdout)["policies"]:
        assert row["staleness"]["mean"] == pytest.approx(staleness, abs=0.12)


def test_the_same_command_gives_the_same_bytes_on_one_core_and_on_two(lengths: Path, tmp_path: Path) -> None:
    for name, jobs in (("one", 1), ("two", 2)):
        result = gyre("compare", "--trace", lengths, *SMALL, "--out", tmp_path / name, "--jobs", jobs, "--seeds", 2)
        assert result.exit_code == 0, result.output
    files = sorted(path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*") if path.is_file())
    assert len(files) > 30
    for file in files:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes(), file


def test_resume_makes_only_what_is_missing(lengths: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = ("compare", "--trace", lengths, *SMALL, "--out", out, "--jobs", 1)
    assert gyre(*command).exit_code == 0
    whole = (out / "summary.json").read_bytes()
    kept = (out / "runs" / "elastic-seed0" / "journal.jsonl").stat().st_mtime_ns
    journal = out / "runs" / "async-seed0" / "journal.jsonl"
    journal.write_bytes(journal.read_bytes()[:5000])  # as a kill leaves it
    again = gyre(*command)
    assert again.exit_code == 2
    assert "--resume" in again.stderr
    assert gyre(*command, "--resume").exit_code == 0
    assert (out / "summary.json").read_bytes() == whole
    assert (out / "runs" / "elastic-seed0" / "journal.jsonl").stat().st_mtime_ns == kept


def test_a_policy_of_the_users_own(lengths: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_policy.py").write_text(
        "from gyre.policies import Elastic\n\n\nclass Mine(Elastic):\n    name = 'mine'\n"
    )
    monkeypatch.chdir(tmp_path)
    policies = ("--policy", "elastic", "--policy", "my_policy:Mine", "--policy", "E1=elastic,mu=1")
    result = gyre("compare", "--trace", lengths, *SMALL, *policies, "--jobs", 1, "--json")
    elastic, mine, e1 = json.loads(result.stdout)["policies"]
    assert mine["policy"] == "my_policy:Mine"
    assert mine["hours"] == elastic["hours"]
    assert e1["policy"] == "E1"


def documented_policy() -> str:
    """The example of the guide, word for word."""
    text = (Path(__file__).parents[2] / "docs" / "compare.md").read_text()
    return text.split("```python\n")[1].split("```")[0]


def test_the_policy_of_the_guide_runs(lengths: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "guide_policy.py").write_text(documented_policy())
    monkeypatch.chdir(tmp_path)
    policies = ("--policy", "elastic", "--policy", "guide_policy:Half")
    result = gyre("compare", "--trace", lengths, *SMALL, *policies, "--jobs", 1, "--json")
    assert result.exit_code == 0, result.output
    assert [row["complete"] for row in json.loads(result.stdout)["policies"]] == [True, True]


def test_what_a_policy_prints_does_not_get_between_the_figures(
    lengths: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "loud.py").write_text(
        "from gyre.policies import Elastic\n\n\nclass Loud(Elastic):\n    name = 'loud'\n\n"
        "    def moves(self, view):\n        print('moving')\n        return super().moves(view)\n"
    )
    monkeypatch.chdir(tmp_path)
    result = gyre("compare", "--trace", lengths, *SMALL, "--policy", "loud:Loud", "--jobs", 1, "--json")
    assert json.loads(result.stdout)["policies"][0]["policy"] == "loud:Loud"


def test_a_policy_that_never_trains_is_given_up(lengths: Path) -> None:
    options = ("--unmatched", "--policy", "elastic,dispatch=continuous", "--jobs", 1)
    result = gyre("compare", "--trace", lengths, *SMALL, *options)
    assert result.exit_code == 2
    assert "no update after" in result.stderr


def test_phi_is_corrected_where_groups_are_lost_and_only_there(lengths: Path) -> None:
    """Executions over 340 s are lost; a group that loses more than one is dropped, and holds its place until then."""
    limits = ("--set", "limits.overall_timeout_s=340", "--set", "training.min_group_members=3")
    result = gyre("compare", "--trace", lengths, *SMALL, *limits, "--steps", 100, "--jobs", 1, "--json")
    comparison = json.loads(result.stdout)
    assert any("phi was corrected" in note for note in comparison["notes"])
    for row in comparison["policies"]:
        assert row["staleness"]["mean"] == pytest.approx(1.0, abs=0.12)
    whole = gyre("compare", "--trace", lengths, *SMALL, "--jobs", 1, "--json")
    assert not any("phi was corrected" in note for note in json.loads(whole.stdout)["notes"])


def test_simulate_and_its_settings_run_again(lengths: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    options = ("--policy", "async", "--phi", 1, "--mu", 1, "--seed", 3)
    result = gyre("simulate", "--trace", lengths, *SMALL, *options, "--out", first)
    assert result.exit_code == 0, result.output
    settings = tomllib.loads((first / "settings.toml").read_text())
    assert settings["seed"] == 3
    assert settings["policy_settings"]["train_cells"] >= 1  # the split that was chosen
    again = gyre("simulate", "--settings", first / "settings.toml", "--policy", "async", "--out", second)
    assert again.exit_code == 0, again.output
    assert (first / "journal.jsonl").read_bytes() == (second / "journal.jsonl").read_bytes()
    assert gyre("report", first).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("compare",), "PROFILE"),
        (("compare", "no-such-profile"), "no such bundled profile"),
        (("compare", "nl2repo-122b", "--trace", "x"), "either a PROFILE"),
        (("compare", "nl2repo-122b", "--policy", "no-such"), "choose one of"),
        (("compare", "nl2repo-122b", "--policy", "elastic,no_such=1"), "no_such"),
        (("compare", "nl2repo-122b", "--policy", "elastic,phi=-1"), "phi"),
        (("compare", "nl2repo-122b", "--policy", "elastic", "--policy", "elastic"), "twice"),
        (("compare", "nl2repo-122b", "--policy", "a/b=elastic"), "label"),
        (("compare", "nl2repo-122b", "--policy", "elastic", "--policy", "C1=colocate,cluster.cells=7"), "same GPUs"),
        (("compare", "nl2repo-122b", "--set", "cluster.no_such=1"), "known keys"),
        (("compare", "nl2repo-122b", "--set", "cells"), "KEY=VALUE"),
        (("compare", "nl2repo-122b", "--hardware", "no-such"), "no such profile"),
        (("compare", "nl2repo-122b", "--set", "cluster.gpus_per_cell=12"), "gpus_per_cell"),
        (("compare", "nl2repo-122b", "--cells", 1), "none is left to serve"),
        (("compare", "nl2repo-122b", "--policy", "async,train_cells=9"), "train_cells"),
        (("compare", "nl2repo-122b", "--unmatched", "--staleness", 1), "exclude"),
        (("compare", "nl2repo-122b", "--staleness", "nan"), "nan"),
        (("compare", "nl2repo-122b", "--resume"), "--out"),
        (("compare", "README.md"), "--trace"),
        (("compare", "--trace", "nl2repo-122b"), "without --trace"),
        (("compare", "nl2repo-122b", "--unmatched", "--policy", "elastic,phi=Infinity"), "phi"),
        (("compare", "nl2repo-122b", "--policy", ":X"), "cannot be loaded"),
        (("compare", "nl2repo-122b", "--set", "cluster.standalone_engines=100000"), "standalone_engines"),
        (("compare", "nl2repo-122b", "--set", "training.min_group_members=9"), "min_group_members"),
        (("simulate", "nl2repo-122b", "--settings", "no-such.toml"), "no-such.toml"),
        (("report", "no-such-folder"), "no-such-folder"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    arguments: tuple[object, ...], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    result = gyre(*arguments)
    assert result.exit_code == 2
    assert says in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1 or "Usage:" in result.stderr
    assert result.stdout == ""


def test_dry_run_prints_settings_and_leaves_nothing(tmp_path: Path) -> None:
    result = gyre("compare", "nl2repo-122b", "--dry-run", "--out", tmp_path / "out", "--staleness", 1.5)
    plan = tomllib.loads(result.stdout)
    assert {keys["policy_settings"]["phi"] for keys in plan["variants"].values()} == {1.0}
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_stop_before_any_run_has_begun(lengths: Path, tmp_path: Path, jobs: int, number: signal.Signals) -> None:
    out = tmp_path / "out"
    command = ("compare", "--trace", lengths, *SMALL, "--out", out, "--jobs", jobs)
    process = run_in_background(*command)
    wait_for(out / "settings.toml", process)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 130, stderr
    assert "Traceback" not in stderr
    assert gyre(*command, "--resume").exit_code == 0


def children(process: subprocess.Popen[str]) -> list[Path]:
    """The /proc folders of a process's children."""
    listed = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    return [Path("/proc") / child for child in listed.split()]


def lives(folder: Path) -> bool:
    """Whether a process is there and not merely waiting to be reaped."""
    try:
        return (folder / "stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs /proc to see the workers")
def test_workers_end_with_their_parent(lengths: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = run_in_background("compare", "--trace", lengths, *SMALL, "--steps", 100_000, "--out", out, "--jobs", 2)
    wait_for(out / "runs" / "colocate-seed0" / "journal.jsonl", process)
    workers = children(process)
    assert len([worker for worker in workers if lives(worker)]) >= 2
    process.kill()
    process.wait()
    for _ in range(600):
        if not any(map(lives, workers)):
            return
        time.sleep(0.1)
    pytest.fail(f"still there after their parent was killed: {[worker.name for worker in workers if lives(worker)]}")


def run_in_background(*arguments: object) -> subprocess.Popen[str]:
    code = "from gyre.cli import main; main()"
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    while not path.exists() and process.poll() is None:
        time.sleep(0.05)


@pytest.mark.parametrize("jobs", [1, 2])
def test_interrupt_leaves_a_readable_part_and_keeps_others_out(lengths: Path, tmp_path: Path, jobs: int) -> None:
    out = tmp_path / "out"
    command = ("compare", "--trace", lengths, *SMALL, "--steps", 3_000, "--out", out, "--jobs", jobs)
    process = run_in_background(*command)
    wait_for(out / "runs" / "colocate-seed0" / "journal.jsonl", process)
    refused = gyre(*command, "--resume")
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 130, stderr
    assert refused.exit_code == 2
    assert "in use" in refused.stderr
    assert "Traceback" not in stderr
    assert "Stopped early" in stdout
    assert json.loads((out / "summary.json").read_text())["complete"] is False
    assert gyre("report", out).exit_code == 0
