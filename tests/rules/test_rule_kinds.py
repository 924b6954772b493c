"""Commands, patterns, schemas, files, limits and functions against real files and processes."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rules_files import artefacts, broken, evaluated, judged, rule_set

from gyre.scoring.rules.kinds.limit import falling

PASSED = (1.0, "")


def command(command: str | list[str], **more: Any) -> dict[str, Any]:
    return {"kind": "command", "command": command, **more}


def regex(pattern: Any, **more: Any) -> dict[str, Any]:
    return {"kind": "regex", "pattern": pattern, **({"answer": True} | more)}


@pytest.mark.parametrize(
    ("rule", "share", "said"),
    [
        (command("true"), 1.0, ""),
        (command("false"), 0.0, "exit code 1"),
        (command("sh -c 'exit 3'", exit_code=[0, 3]), 1.0, ""),
        (command("cat a.txt", stdout="one\ntwo"), 1.0, ""),
        (command("cat a.txt", stdout="one"), 0.0, "in place of 'one'"),
        (command("cat missing.txt"), 0.0, "cat: missing.txt: No such file"),
        (command("cat", stdin="hello", stdout="hello"), 1.0, ""),
        (command("./run.sh"), 0.0, "run.sh: no such program among the artefacts"),
        (command("{rules}/artefacts/../ours.sh"), 1.0, ""),
        (command("sh -c 'kill -9 $$'"), 0.0, "killed by SIGKILL"),
        (command("sleep 60", seconds=0.3), 0.0, "not done within its time limit"),
        (command(["sh", "-c", "exit 127"]), 0.0, "exit code 127"),
    ],
)
def test_commands(tmp_path: Path, rule: dict[str, Any], share: float, said: str) -> None:
    artefacts(tmp_path, a__txt="one  \ntwo\n\n")
    (tmp_path / "ours.sh").write_text("#!/bin/sh\nexit 0\n")
    (tmp_path / "ours.sh").chmod(0o755)
    passed, detail = judged(tmp_path, rule)
    assert passed == share
    assert said in detail


def test_a_command_is_told_of_the_execution(tmp_path: Path) -> None:
    folder = artefacts(tmp_path)
    script = 'import json, os, sys; told = json.load(sys.stdin); assert os.path.samefile(told["folder"], ".")'
    rule = command(["python3", "-c", f'{script}; print(told["task"], told["steps"], told["data"]["key"])'])
    told: dict[str, Any] = {"task": "t", "steps": 4, "data": {"key": "k"}}
    assert judged(tmp_path, rule | {"stdout": "t 4 k"}, folder, **told) == PASSED


def test_what_a_command_writes_stays_in_a_copy(tmp_path: Path) -> None:
    folder = artefacts(tmp_path, a__txt="one")
    assert judged(tmp_path, command("sh -c 'echo two > a.txt; touch b.txt'")) == PASSED
    assert (folder / "a.txt").read_text() == "one"
    assert not (folder / "b.txt").exists()


def test_a_command_that_is_not_on_the_machine_breaks_the_rule(tmp_path: Path) -> None:
    artefacts(tmp_path)
    assert broken(tmp_path, command("no-such-program-1")) == "rule 'rule 0': command not found: no-such-program-1"
    assert "'rule 0': not done within its time limit" in broken(
        tmp_path, command("sleep 9", seconds=0.2, on_timeout="invalid")
    )


def test_a_rule_reads_what_the_command_before_printed(tmp_path: Path) -> None:
    folder = artefacts(tmp_path)
    rules = rule_set(
        tmp_path,
        regex("^Total 3$", answer=False, output_of="say", flags=["multiline"]),
        regex("4", answer=False, output_of="say"),
        command("sh -c 'echo Total 3; exit 1'", name="say"),
        regex("3", answer=False, output_of="hang"),
        command("sh -c 'echo 3; sleep 60'", name="hang", seconds=0.3),
    )
    found = {check.name: check for check in evaluated(rules, folder).checks}
    assert list(found) == ["rule 0", "rule 1", "say", "rule 3", "hang"]
    assert [check.passed for check in found.values()] == [1.0, 0.0, 0.0, 0.0, 0.0]
    assert "was ended" in found["rule 3"].detail


@pytest.mark.parametrize(
    ("rule", "answer", "share", "said"),
    [
        (regex("b+"), "abba", 1.0, ""),
        (regex("b", at_least=2), "abba", 1.0, ""),
        (regex("b", at_least=3), "abba", 0.0, "2 matches, 3 at least"),
        (regex("b", at_most=1), "abba", 0.0, "more than 1 matches, such as 'b'"),
        (regex("b", must="not_match"), "aca", 1.0, ""),
        (regex("b", must="not_match"), "abba", 0.0, "more than 0 matches"),
        (regex("^B$"), "a\nb", 0.0, "0 matches"),
        (regex("^B$", flags=["ignorecase", "multiline"]), "a\nb", 1.0, ""),
        (regex("b"), None, 0.0, "there is no answer"),
        (regex("b", must="not_match"), None, 0.0, "there is no answer"),
        (regex("b", most_bytes=4), "abbaa", 0.0, "longer than 4 bytes"),
        (regex("(a+)+$", seconds=0.5), "a" * 40 + "b", 0.0, "not done within its time limit"),
        (regex("(?:(?:a|a)*)*c", must="not_match", seconds=0.5), "a" * 40, 0.0, "not done within its time limit"),
        (regex({"task": "wanted"}), "abba", 1.0, ""),
        (regex("\udcff"), "abba", 0.0, "0 matches"),
    ],
)
def test_patterns(tmp_path: Path, rule: dict[str, Any], answer: str | None, share: float, said: str) -> None:
    if rule["pattern"] == "\udcff":
        rule["pattern"] = "\\udcff"  # a lone surrogate, which TOML does not hold itself
    passed, detail = judged(tmp_path, rule, answer=answer, data={"wanted": "bb"})
    assert passed == share
    assert said in detail


def test_an_answer_that_is_no_text_is_a_zero(tmp_path: Path) -> None:
    artefacts(tmp_path)
    assert judged(tmp_path, regex("a"), answer="\ud800") == (0.0, "0 matches, 1 at least")


def test_values_that_a_task_does_not_bring_break_the_rule(tmp_path: Path) -> None:
    artefacts(tmp_path)
    rule = regex({"task": "expected.pattern"})
    assert "no field 'expected.pattern'" in broken(tmp_path, rule, answer="a", data={"expected": {}})
    for value in (5, "(", ["a"], "a" * 20_000):
        assert "'pattern' does not fit" in broken(tmp_path, rule, answer="a", data={"expected": {"pattern": value}})


SCHEMA = {
    "type": "object",
    "required": ["total"],
    "properties": {"total": {"$ref": "#/$defs/amount"}, "mail": {"type": "string", "format": "email"}},
    "$defs": {"amount": {"type": "number", "minimum": 0}},
}


@pytest.mark.parametrize(
    ("text", "share", "said"),
    [
        ('{"total": 3}', 1.0, ""),
        ('{"total": 3, "mail": "no address"}', 1.0, ""),
        ('{"total": -3}', 0.0, "$.total: -3 is less than the minimum of 0"),
        ("{}", 0.0, "'total' is a required property"),
        ("", 0.0, "not JSON"),
        ('{"total": NaN}', 0.0, "not JSON: NaN is no JSON value"),
        ("[" * 100_000, 0.0, "nested too deeply"),
        ('{"total":' * 100_000, 0.0, "nested too deeply"),
        ('{"total": 1' + "0" * 5000 + "}", 0.0, "not JSON"),
        ("\udcff", 0.0, "not JSON"),
    ],
    ids=lambda value: str(value)[:20].encode("ascii", "replace").decode(),
)
def test_schemas(tmp_path: Path, text: str, share: float, said: str) -> None:
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    artefacts(tmp_path, out__json=text.encode("utf-8", "surrogateescape"))
    for schema in ({"inline_schema": SCHEMA}, {"schema_file": "schema.json"}):
        passed, detail = judged(tmp_path, {"kind": "json_schema", "file": "out.json", **schema})
        assert passed == share
        assert said in detail


def test_deep_values_and_slow_patterns_are_bounded_under_a_schema(tmp_path: Path) -> None:
    artefacts(tmp_path)
    nested = {"$defs": {"list": {"items": {"$ref": "#/$defs/list"}}}, "$ref": "#/$defs/list"}
    rule = {"kind": "json_schema", "answer": True, "seconds": 5}
    depth = 900  # less than the parser takes, more than the validator does
    passed, detail = judged(tmp_path, rule | {"inline_schema": nested}, answer="[" * depth + "]" * depth)
    assert (passed, detail) == (0.0, "nested too deeply to be held against the schema")
    slow = {"pattern": "^(a+)+$"}
    passed, detail = judged(tmp_path, rule | {"inline_schema": slow, "seconds": 0.7}, answer=json.dumps("a" * 40 + "b"))
    assert (passed, detail) == (0.0, "not done within its time limit")


def test_a_schema_that_a_task_brings_must_be_one(tmp_path: Path) -> None:
    artefacts(tmp_path)
    rule = {"kind": "json_schema", "answer": True, "inline_schema": {"task": "schema"}}
    assert judged(tmp_path, rule, answer="3", data={"schema": {"type": "number"}}) == PASSED
    assert "no JSON Schema" in broken(tmp_path, rule, answer="3", data={"schema": {"type": 5}})
    remote = {"schema": {"$ref": "https://localhost:1/s"}}
    assert "nothing is fetched" in broken(tmp_path, rule, answer="3", data=remote)
    relative = {"schema": {"$ref": "other.json"}}
    assert "refers to other.json, which is not in it" in broken(tmp_path, rule, answer="3", data=relative)


ONE = hashlib.sha256(b"one").hexdigest()


def file(**more: Any) -> dict[str, Any]:
    return {"kind": "file", **more}


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (file(path="a.txt"), ""),
        (file(path="sub"), ""),
        (file(path="no.txt"), "no such file"),
        (file(path="no.txt", state="absent"), ""),
        (file(path="a.txt", state="absent"), "is there"),
        (file(path="a.txt", state="unchanged", sha256=ONE), ""),
        (file(path="b.txt", state="unchanged", sha256=ONE), "changed"),
        (file(path="b.txt", state="changed", sha256=ONE), ""),
        (file(path="a.txt", state="changed", sha256=ONE), "unchanged"),
        (file(path="a.txt", state="unchanged", baseline="before"), ""),
        (file(path="b.txt", state="unchanged", baseline="before"), "changed"),
        (file(path="b.txt", state="changed", baseline="before"), ""),
        (file(path="new.txt", state="changed", baseline="before"), ""),
        (file(path="gone.txt", state="changed", baseline="before"), "no such file"),
        (file(path="gone.txt", state="unchanged", baseline="before"), "changed"),
        (file(path="never.txt", state="unchanged", baseline="before"), ""),
        (file(path="a.txt", min_bytes=3, max_bytes=3), ""),
        (file(path="a.txt", min_bytes=4), "3 bytes"),
        (file(path="a.txt", max_bytes=2), "3 bytes"),
        (file(path="sub", max_bytes=2), "a folder"),
        (file(glob="*.txt", at_least=3, at_most=3), ""),
        (file(glob="**/*.txt", at_least=4, at_most=4), ""),
        (file(glob="sub/**", at_least=2, at_most=2), ""),
        (file(glob="*.txt", at_least=5), "3 files, 5 at least"),
        (file(glob="*.txt", at_most=1), "3 files, 1 at least, 1 at most"),
        (file(glob="*.pyc", state="absent"), ""),
        (file(glob="sub/*", state="absent"), "is there"),
        (file(glob="*.txt", max_bytes=2), "a.txt: 3 bytes"),
        (file(glob="sub/*", state="unchanged", baseline="before"), ""),
        (file(glob="**", state="unchanged", baseline="before"), "b.txt: changed"),
        (file(glob="gone*", state="unchanged", baseline="before"), "gone.txt: changed"),
        (file(glob="new*", state="unchanged", baseline="before"), "new.txt: changed"),
    ],
)
def test_files(tmp_path: Path, rule: dict[str, Any], said: str) -> None:
    for name, texts in {"artefacts": ("one", "two"), "before": ("one", "zwei")}.items():
        (tmp_path / name / "sub" / "deep").mkdir(parents=True)
        for path, text in zip(("a.txt", "b.txt"), texts, strict=True):
            (tmp_path / name / path).write_text(text)
        (tmp_path / name / "sub" / "c.txt").write_text("same")
        (tmp_path / name / "sub" / "deep" / "d.md").write_text("same")
    (tmp_path / "artefacts" / "new.txt").write_text("new")
    (tmp_path / "before" / "gone.txt").write_text("gone")
    passed, detail = judged(tmp_path, rule)
    assert passed == (not said)
    assert said in detail


def test_a_baseline_that_cannot_be_compared_breaks_the_rule(tmp_path: Path) -> None:
    artefacts(tmp_path, a__txt="one")
    (tmp_path / "before").mkdir()
    (tmp_path / "before" / "a.txt").symlink_to("/etc/passwd")
    rule = file(path="a.txt", state="unchanged", baseline="before")
    assert "a link that leads out" in broken(tmp_path, rule)
    assert "not there" in broken(tmp_path, rule | {"baseline": {"task": "folder"}}, data={"folder": "no"})


@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "sub/../../secret", "", "a\x00b", "out", "deep/secret"])
def test_no_path_leads_out_of_the_artefacts(tmp_path: Path, path: str) -> None:
    (tmp_path / "secret").write_text("secret")
    folder = artefacts(tmp_path)
    (folder / "sub").mkdir()
    (folder / "out").symlink_to(tmp_path / "secret")
    (folder / "deep").symlink_to("..")
    (folder / "circle").symlink_to("circle")
    for rule in (
        file(path={"task": "path"}),
        file(path={"task": "path"}, state="absent"),
        regex("secret", answer=False, file={"task": "path"}),
        {"kind": "json_schema", "file": {"task": "path"}, "inline_schema": {}},
        {"kind": "sql", "database": {"task": "path"}, "query": "SELECT 1"},
    ):
        passed, detail = judged(tmp_path, rule, data={"path": path})
        assert passed == 0.0
        assert "out of the artefacts" in detail
    assert judged(tmp_path, file(path="circle"))[0] == 0.0
    assert judged(tmp_path, file(glob="**/secret", state="absent")) == PASSED


def test_links_within_the_artefacts_are_followed(tmp_path: Path) -> None:
    folder = artefacts(tmp_path, a__txt="one")
    (folder / "sub").mkdir()
    (folder / "sub" / "link").symlink_to("../a.txt")
    assert judged(tmp_path, regex("one", answer=False, file="sub/link")) == PASSED


def test_pipes_devices_and_huge_files_hold_nothing_up(tmp_path: Path) -> None:
    folder = artefacts(tmp_path)
    os.mkfifo(folder / "pipe")
    with (folder / "huge").open("wb") as out:
        out.truncate(1 << 30)
    (folder / "null").symlink_to("/dev/zero")
    assert judged(tmp_path, regex("a", answer=False, file="pipe")) == (0.0, "pipe: no such file")
    assert judged(tmp_path, file(path="pipe", state="unchanged", sha256=ONE)) == (0.0, "pipe: changed")
    assert judged(tmp_path, regex("a", answer=False, file="huge")) == (0.0, "huge: larger than 16,777,216 bytes")
    assert judged(tmp_path, file(path="huge", max_bytes=1 << 20)) == (0.0, "huge: 1,073,741,824 bytes")
    assert judged(tmp_path, regex("a", answer=False, file="null"))[0] == 0.0
    passed, detail = judged(tmp_path, file(path="huge", state="unchanged", sha256=ONE, seconds=0.02))
    assert (passed, detail) == (0.0, "not done within its time limit")
    sql = {"kind": "sql", "database": "huge", "query": "SELECT 1", "most_bytes": 1000}
    assert judged(tmp_path, sql) == (0.0, "huge: larger than 1,000 bytes")
    assert judged(tmp_path, command("test ! -e pipe")) == PASSED  # the copy has none


def test_names_that_are_no_text_are_told(tmp_path: Path) -> None:
    folder = artefacts(tmp_path)
    (folder / os.fsdecode(b"\xff\xfe")).write_bytes(b"12345")
    passed, detail = judged(tmp_path, file(glob="*", max_bytes=2))
    assert passed == 0.0
    assert detail.encode("utf-8")


def test_an_execution_that_left_nothing_fails_what_looks_at_it(tmp_path: Path) -> None:
    rules = rule_set(tmp_path, command("true"), file(path="a", state="absent"), regex("yes"), weight_less())
    evaluation = evaluated(rules, None, answer="yes", tool_calls=3)
    assert [check.passed for check in evaluation.checks] == [0.0, 0.0, 1.0, 1.0]
    assert evaluation.checks[0].detail == "the execution left nothing"


def weight_less() -> dict[str, Any]:
    return {"kind": "limit", "of": "tool_calls", "at_most": 3, "weight": 0}


def limit(**more: Any) -> dict[str, Any]:
    return {"kind": "limit", "of": "steps", **more}


@pytest.mark.parametrize(
    ("rule", "steps", "share"),
    [
        (limit(at_most=10), 10, 1.0),
        (limit(at_most=10), 11, 0.0),
        (limit(at_most=10, zero_above=20), 15, 0.5),
        (limit(at_most=10, zero_above=20), 20, 0.0),
        (limit(at_most=10, zero_above=20), 50, 0.0),
        (limit(at_least=4), 3, 0.0),
        (limit(at_least=4, zero_below=0), 3, 0.75),
        (limit(at_least=4, zero_below=2), 1, 0.0),
        (limit(at_least=4, at_most=4), 4, 1.0),
        (limit(at_most={"task": "expert"}, zero_above=12), 9, 0.5),
    ],
)
def test_limits(tmp_path: Path, rule: dict[str, Any], steps: int, share: float) -> None:
    assert judged(tmp_path, rule, steps=steps, data={"expert": 6})[0] == pytest.approx(share)


def test_a_count_that_is_not_known_breaks_the_rule(tmp_path: Path) -> None:
    artefacts(tmp_path)
    assert "the number of tool calls is not known" in broken(tmp_path, limit(at_most=3) | {"of": "tool_calls"})


@given(st.integers(0, 100), st.integers(0, 100), st.integers(0, 200))
def test_more_steps_never_give_more(bound: int, further: int, steps: int) -> None:
    zero = bound + further
    one, other = (falling(max(count, bound), bound, zero) for count in (steps, steps + 1))
    assert 0 <= other <= one <= 1


JUDGE = """
import json, pathlib, time
def here(subject):
    return pathlib.Path("a.txt").read_text() == "one" and subject.data["wanted"] == "one"
def share(subject):
    return {"score": 0.25, "reason": "a quarter"}
def wrong(subject):
    return 7
def fails(subject):
    raise KeyError("x")
def hangs(subject):
    time.sleep(60)
"""


def test_functions(tmp_path: Path) -> None:
    artefacts(tmp_path, a__txt="one", json__py="raise SystemExit", own_rules__py="def here(subject): return 0")
    (tmp_path / "own_rules.py").write_text(JUDGE)

    def rule(name: str, **more: Any) -> dict[str, Any]:
        return {"kind": "python", "function": f"own_rules:{name}", **more}

    assert judged(tmp_path, rule("share")) == (0.25, "a quarter")
    assert judged(tmp_path, rule("hangs", seconds=2)) == (0.0, "not done within its time limit")
    assert "returned 7; return a share" in broken(tmp_path, rule("wrong"))
    assert "KeyError" in broken(tmp_path, rule("fails"))
    assert "missing" in broken(tmp_path, rule("missing"))
