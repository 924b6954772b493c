"""A run can be looked at while it goes on: its process keeps the folder, and only the page is written."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from report_journal import HEADER, hand_journal

import gyre.cli.report_drawing as drawing
from gyre.cli.report import report
from gyre.errors import InputError
from gyre.folder_lock import InUseError
from gyre.journal import to_line
from gyre.report import Results, ResultsFolder, open_results, read_run

LINES = [to_line(entry) + "\n" for entry in hand_journal()[1:]]  # type: ignore[arg-type]
_STEP_ONE = next(index for index, line in enumerate(LINES) if '"UpdateApplied"' in line) + 1  # lines up to its end

_PROGRAM = """
import sys
from pathlib import Path
from gyre.report import ResultsFolder, read_run
folder = ResultsFolder.create(Path(sys.argv[1]), {"policy": "elastic", "seed": 7})
folder.open_journal()
print("ready", flush=True)
with (folder.path / "journal.jsonl").open("a") as journal:
    for line in sys.stdin:
        if line == "end\\n":
            break
        journal.write(eval(line))
        journal.flush()
        print("written", flush=True)
folder.write_run(read_run(folder.path))
folder.close()
"""


class Running:
    """A process that holds the folder's lock as a run does, and appends what it is told to."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._answer()

    def append(self, text: str) -> None:
        self._tell(repr(text))
        self._answer()

    def end(self) -> None:
        """Let it write its tables and its report, and end."""
        self._tell("end")
        assert self._process.wait(60) == 0

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def _answer(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline(), "the process has ended"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def running(folder: Path) -> Iterator[Running]:
    run = Running(folder)
    yield run
    run.kill()


def look(*arguments: Any) -> Result:
    return CliRunner().invoke(report, [str(argument) for argument in arguments])


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_run_that_goes_on_is_drawn_as_of_now(folder: Path, running: Running) -> None:
    running.append("".join(LINES[:_STEP_ONE]) + LINES[_STEP_ONE][:20])
    before = contents(folder)
    found = look(folder)
    assert (found.exit_code, found.stderr) == (0, ""), "a line that is being written is no damage"
    assert "the run goes on: as of step 1; its tables and summary are written when it ends" in found.stdout
    after = contents(folder)
    page = after.pop("report.html").decode()
    assert after == before, "all else is the running process's own"
    assert "the run goes on: as of step 1" in page
    assert "stopped before the last step" not in page
    running.append(LINES[_STEP_ONE][20:] + "".join(LINES[_STEP_ONE + 1 :]))
    running.end()
    assert "goes on" not in (folder / "report.html").read_text()
    assert read_run(folder).summary.problems == {}, "the torn line was finished"
    assert "goes on" not in look(folder).stdout


def test_json_and_a_page_elsewhere(folder: Path, running: Running) -> None:
    running.append("".join(LINES[:_STEP_ONE]))
    before = contents(folder)
    found = look(folder, "--json", "--out", folder.parent / "now.html")
    summary = json.loads(found.stdout)
    assert (summary["complete"], summary["steps"]) == (False, 1)
    assert contents(folder) == before
    assert "as of step 1" in (folder.parent / "now.html").read_text()
    assert look(folder, "--out", folder / "summary.json").exit_code != 0, "no table is overwritten by a page"
    assert contents(folder) == before


def test_a_page_elsewhere_of_a_run_that_is_over(folder: Path) -> None:
    with ResultsFolder.create(folder, HEADER.settings) as target, target.open_journal() as journal:
        for entry in hand_journal()[1:]:
            journal.append(entry)  # type: ignore[arg-type]
    before = contents(folder)
    assert look(folder, "--out", folder.parent / "page.html").exit_code == 0
    assert contents(folder) == before
    assert "goes on" not in (folder.parent / "page.html").read_text()


def test_a_run_that_has_hardly_begun(folder: Path, running: Running) -> None:
    found = look(folder)
    assert found.exit_code == 0, found.output
    assert "no step is done yet" in found.stdout
    (folder / "journal.jsonl").write_text("")
    with pytest.raises(InputError, match="the run has not begun; look again"):
        open_results(folder, going_on=True)


def test_every_cut_of_a_journal_is_read_as_far_as_it_goes(folder: Path) -> None:
    ResultsFolder.create(folder, HEADER.settings).close()
    whole = (HEADER.to_line() + "\n" + "".join(LINES)).encode()
    for cut in range(len(HEADER.to_line()) + 1, len(whole), 97):
        (folder / "journal.jsonl").write_bytes(whole[:cut])
        results = open_results(folder, going_on=True)
        assert results.runs[0].summary.problems == {}
        updates = whole[: whole[:cut].rfind(b"\n") + 1].count(b'"UpdateApplied"')
        assert results.runs[0].summary.steps == updates


def test_a_process_that_ends_while_it_is_looked_at_has_the_last_word(
    folder: Path, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page of a run that went on when it was read does not replace the page of its end."""
    running.append("".join(LINES[:_STEP_ONE]))

    def read_then_end(*arguments: Any, going_on: bool = False, **more: Any) -> Results:
        results = open_results(*arguments, going_on=going_on, **more)
        if going_on:
            running.append("".join(LINES[_STEP_ONE:]))
            running.end()
        return results

    monkeypatch.setattr(drawing, "open_results", read_then_end)
    found = look(folder)
    assert found.exit_code == 0
    assert "goes on" not in found.stdout
    assert "goes on" not in (folder / "report.html").read_text()
    assert json.loads((folder / "summary.json").read_text())["complete"] is True


def test_a_newer_page_stays_where_the_lock_is_still_held(
    folder: Path, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    running.append("".join(LINES[:_STEP_ONE]))

    def read_then_write(*arguments: Any, **more: Any) -> Results:
        results = open_results(*arguments, **more)
        (folder / "report.html").write_text("the run's own")
        return results

    monkeypatch.setattr(drawing, "open_results", read_then_write)
    assert look(folder).exit_code == 0
    assert (folder / "report.html").read_text() == "the run's own"


def test_a_comparison_that_goes_on(tmp_path: Path) -> None:
    plan = {"seeds": 1, "variants": {"b": {}, "a": {}}}
    with ResultsFolder.create(tmp_path, plan) as target:
        with pytest.raises(InputError, match="no run of the comparison has begun"):
            open_results(tmp_path, going_on=True)
        run = ResultsFolder.part(target.run_path("b", 0), {"policy": "b", "seed": 0})
        with run.open_journal() as journal:
            for entry in hand_journal()[1:]:
                journal.append(entry)  # type: ignore[arg-type]
        found = look(tmp_path)
        assert found.exit_code == 0, found.output
        assert "the comparison goes on: as of 1 complete run of 2" in found.stdout
        assert sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith(".")) == [
            "report.html",
            "runs",
            "settings.toml",
        ]
        with pytest.raises(InUseError):
            ResultsFolder.create(tmp_path, plan, resume=True)
        assert "as of 1 complete run of 2" in (tmp_path / "report.html").read_text()
