"""The record of evaluations: whole after a kill at any moment, honest about what was lost."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

import pytest
from evaluating import wait_until
from hypothesis import given, settings
from hypothesis import strategies as st

from gyre.errors import InputError
from gyre.scoring.evaluation import Check, CheckStage, Evaluation
from gyre.scoring.evaluation_log import EvaluationKey, EvaluationLog, Recorded, read_evaluations


def recorded(number: int) -> Recorded:
    evaluation = Evaluation(
        valid=number % 3 != 0,
        score=number / 7 if number % 3 else None,
        reference=f"sha256:{number}",
        reason="" if number % 3 else "it hangs ☃\n",
        checks=(Check("lint", 0.5, 2.0, CheckStage.PROCESS, "line 3"),),
        details={"n": number, "text": "é\n{}"},
        seconds=0.1 * number,
    )
    evaluation = Evaluation(**{**_fields(evaluation), "reason": evaluation.reason.strip()})
    return Recorded(EvaluationKey(f"e{number}", number % 2, "sha256:x", "k", "by"), evaluation, "completed", "g", "t")


def _fields(evaluation: Evaluation) -> dict[str, object]:
    return {name: getattr(evaluation, name) for name in Evaluation.__dataclass_fields__}


ALL = [recorded(number) for number in range(6)]


def filled(path: Path) -> Path:
    with EvaluationLog(path) as log:
        for one in ALL:
            log.append(one)
    return path


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    path = filled(tmp_path / "sub" / "log.jsonl")
    assert list(read_evaluations(path)) == ALL
    with EvaluationLog(path) as log:
        assert (len(log), log.problems) == (6, [])
        assert [log.find(one.key) for one in ALL] == [one.evaluation for one in ALL]
        assert log.find(EvaluationKey("e0", 0, "another", "k", "by")) is None


def test_a_line_has_the_checksum_that_its_description_says(tmp_path: Path) -> None:
    line = filled(tmp_path / "log.jsonl").read_bytes().splitlines()[0]
    inner = line[len(b'{"crc32":"01234567","evaluation":') : -1]
    assert line.startswith(b'{"crc32":"%08x","evaluation":{' % zlib.crc32(inner))


@settings(max_examples=60)
@given(st.data())
def test_a_record_cut_at_any_byte_loses_the_cut_line_only(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = filled(Path(folder) / "log.jsonl")
        content = path.read_bytes()
        cut = data.draw(st.integers(0, len(content)))
        path.write_bytes(content[:cut])
        whole = content[:cut].count(b"\n")
        torn = not (content[:cut].endswith(b"\n") or cut == 0)
        with EvaluationLog(path) as log:
            assert (len(log), len(log.problems)) == (whole, int(torn))
            log.append(ALL[5])
        assert list(read_evaluations(path)) == [*ALL[:whole], ALL[5]]


@settings(max_examples=60)
@given(st.data())
def test_a_changed_byte_is_told_of_and_takes_no_other_line_with_it(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = filled(Path(folder) / "log.jsonl")
        content = bytearray(path.read_bytes())
        first = content.index(b"\n") + 1  # the first line says what the file is
        at = data.draw(st.integers(first, len(content) - 2).filter(lambda at: content[at] != 10))
        content[at] ^= data.draw(st.integers(1, 255).filter(lambda change: content[at] ^ change != 10))
        path.write_bytes(content)
        with EvaluationLog(path) as log:
            assert (len(log), len(log.problems)) == (5, 1)
        assert "damaged" in log.problems[0] or "cut off" in log.problems[0]
        assert sum(isinstance(one, str) for one in read_evaluations(path)) == 1


def test_a_killed_writer_leaves_a_record_that_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    code = f"""
import dataclasses, itertools, sys
sys.path[:0] = {[os.path.dirname(__file__), *sys.path]!r}
from test_evaluation_log import *
with EvaluationLog(Path({str(path)!r})) as log:
    for number in itertools.count():
        log.append(recorded(number))
        print(number, flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        wait_until(lambda: path.exists() and path.stat().st_size > 5000)
        process.kill()
        said, _ = process.communicate()
    acknowledged = len(said.splitlines())
    with EvaluationLog(path) as log:
        assert len(log) >= acknowledged > 0
        assert all(log.find(recorded(number).key) == recorded(number).evaluation for number in range(acknowledged))


def test_a_foreign_file_is_refused_and_untouched(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    for text in ('{"execution": "a", "score": 1}\n', "anything", "\n"):
        path.write_text(text)
        with pytest.raises(InputError, match="no record of evaluations; give another file"):
            EvaluationLog(path)
        assert path.read_text() == text
        with pytest.raises(InputError, match="no record of evaluations"):
            list(read_evaluations(path))
    with pytest.raises(InputError, match="cannot be read"):
        list(read_evaluations(tmp_path / "none"))


def test_a_record_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    inner = b'{"version":2,"what":"ever"}'
    path.write_bytes(b'{"crc32":"%08x","evaluation":%s}\n' % (zlib.crc32(inner), inner))
    with pytest.raises(InputError, match="line 1: version 2, this gyre reads 1; use a newer gyre"):
        EvaluationLog(path)


def test_one_process_writes_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    with EvaluationLog(path), pytest.raises(InputError, match="in use by process"):
        EvaluationLog(path)
    EvaluationLog(path).close()


def test_a_full_disk_leaves_the_record_as_it_was(tmp_path: Path) -> None:
    path = filled(tmp_path / "log.jsonl")
    code = f"""
import resource, signal, sys
sys.path[:0] = {[os.path.dirname(__file__), *sys.path]!r}
from test_evaluation_log import *
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, ({path.stat().st_size} + 50,) * 2)
with EvaluationLog(Path({str(path)!r})) as log:
    try:
        log.append(recorded(7))
    except OSError:
        print("refused")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "refused\n"
    assert list(read_evaluations(path)) == ALL
