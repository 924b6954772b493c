"""`gyre trace`: what each command writes and prints, and how bad input ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gyre.cli import main
from gyre.workload import Trace
from gyre.workload.profiles import load_profile

BAD_INPUT = 2


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["trace", *map(str, arguments)])


def refused(*arguments: object) -> str:
    result = run(*arguments)
    assert result.exit_code == BAD_INPUT, result.output
    lines = result.stderr.strip().splitlines()
    assert "Traceback" not in result.stderr
    return lines[-1]


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("generated") / "trace"
    assert run("generate", "coding-katas", "--groups", 12, "--seed", 3, "--out", out).exit_code == 0
    return out


def test_generate_writes_a_synthetic_trace(generated: Path) -> None:
    trace = Trace.read(generated)
    assert len(trace.groups) == 12
    assert trace.executions["synthetic"].all()


def test_generate_is_the_same_to_the_byte(generated: Path, tmp_path: Path) -> None:
    run("generate", "coding-katas", "--groups", 12, "--seed", 3, "--out", tmp_path / "again")
    for name in ("executions", "groups", "calls", "tools"):
        file = f"{name}.parquet"
        assert (generated / file).read_bytes() == (tmp_path / "again" / file).read_bytes()


def test_nothing_is_overwritten_without_force(generated: Path, tmp_path: Path) -> None:
    out = tmp_path / "t"
    arguments = ("generate", "reasoning", "--groups", 2, "--out", out)
    assert run(*arguments).exit_code == 0
    assert "exists already" in refused(*arguments)
    assert run(*arguments, "--force").exit_code == 0
    page = tmp_path / "page.html"
    page.write_text("mine")
    assert "exists already" in refused("describe", generated, "--html", page)
    assert "(no such folder); make it" in refused("describe", generated, "--html", page.parent / "none" / "page.html")
    assert page.read_text() == "mine"


def test_describe_prints_a_table_or_json_and_writes_a_page(generated: Path, tmp_path: Path) -> None:
    table = run("describe", generated)
    assert table.exit_code == 0
    assert "main-thread calls" in table.output
    page = tmp_path / "page.html"
    found = run("describe", generated, "--json", "--html", page)
    assert json.loads(found.stdout)["executions"] == 60
    assert "<html" in page.read_text()
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]


def test_describe_of_a_profile_gives_nominal_durations() -> None:
    found = json.loads(run("describe", "reasoning", "--groups", 20, "--json").stdout)
    assert found["distributions"]["duration_s"]["n"] == 160


def test_fit_writes_a_profile_that_loads_and_says_how_well_it_fits(generated: Path, tmp_path: Path) -> None:
    out, page = tmp_path / "own.toml", tmp_path / "fit.html"
    result = run("fit", generated, "--name", "own", "--out", out, "--html", page, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert {row["quantity"] for row in found["comparisons"]} >= {"calls", "tool_wait_s_per_call"}
    assert all(0.0 <= row["ks"] <= 1.0 for row in found["comparisons"])
    profile = load_profile(out)
    assert profile.name == "own"
    assert "Fitted" in profile.provenance["calls"]
    assert page.exists()
    assert run("generate", out, "--groups", 2, "--out", tmp_path / "t").exit_code == 0


def test_import_reads_a_recording(shared: Path, tmp_path: Path) -> None:
    out = tmp_path / "t"
    result = run("import", shared / "traces/raw/kv_cache_tester", "--out", out, "--replace-human-waits", "--json")
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert said["executions"] == 21
    assert said["findings"]
    assert not Trace.read(out).executions["human_in_loop"].any()


def test_import_of_a_plain_list_of_lengths(tmp_path: Path) -> None:
    source = tmp_path / "lengths.csv"
    source.write_text("group,tokens\na,100\na,200\nb,50\nb,70\n")
    assert run("import", source, "--out", tmp_path / "t").exit_code == 0
    assert len(Trace.read(tmp_path / "t").executions) == 4


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("describe", "nl2repo"), "nor a bundled profile"),
        (("describe", "missing.toml"), "cannot be read (No such file"),
        (("generate", "nl2repo", "--groups", "1", "--out", "t"), "no such bundled profile"),
        (("fit", "missing", "--name", "x", "--out", "x.toml"), "no such file"),
        (("import", "missing", "--out", "t"), "no such file"),
        (("generate", "reasoning", "--groups", "0", "--out", "t"), "--groups"),
        (("generate", "reasoning", "--groups", "1", "--seed", "-1", "--out", "t"), "--seed"),
    ],
)
def test_bad_input_ends_with_code_2_and_one_line(
    arguments: tuple[str, ...], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert says in refused(*arguments)
    assert list(tmp_path.iterdir()) == []


def test_a_bad_profile_name_is_refused_before_anything_is_written(generated: Path, tmp_path: Path) -> None:
    assert "name" in refused("fit", generated, "--name", "no good", "--out", tmp_path / "x.toml")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_no_trace_is_refused(tmp_path: Path) -> None:
    refused("describe", tmp_path)


def test_an_unknown_format_is_refused_before_anything_else(tmp_path: Path) -> None:
    assert "no such format" in refused("import", tmp_path / "missing", "--format", "nonsense", "--out", tmp_path)


@pytest.mark.parametrize("column", ["tokens", "duration_s"])
def test_the_documented_flow_from_lengths_to_a_comparison(tmp_path: Path, column: str) -> None:
    source, folder, profile = tmp_path / "a.csv", tmp_path / "t", tmp_path / "own.toml"
    rows = [f"g{number // 4},{100 + 37 * number % 90}" for number in range(80)]
    source.write_text(f"group,{column}\n" + "\n".join(rows))
    assert run("import", source, "--out", folder).exit_code == 0
    assert run("fit", folder, "--name", "own", "--out", profile).exit_code == 0
    loaded = load_profile(profile)
    assert (loaded.cells, loaded.hardware) == (8, "qwen3.5-122b-tp8")
    assert "Assumed" in loaded.provenance["cells"]
    result = CliRunner().invoke(main, ["compare", str(profile), "--steps", "1", "--jobs", "1", "--json"])
    assert result.exit_code == 0, result.output


def test_fit_takes_the_setting_to_run_in(generated: Path, tmp_path: Path) -> None:
    out = tmp_path / "own.toml"
    result = run("fit", generated, "--name", "own", "--out", out, "--cells", 3, "--hardware", "qwen3-8b-tp1")
    assert result.exit_code == 0, result.output
    assert (load_profile(out).cells, load_profile(out).hardware) == (3, "qwen3-8b-tp1")
    refused("fit", generated, "--name", "own", "--out", tmp_path / "b.toml", "--hardware", "nonsense")
    assert not (tmp_path / "b.toml").exists()
