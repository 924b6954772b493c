"""`gyre samples inspect`: what it shows of a store or a log, and how bad input ends."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from samples_command import EXECUTIONS, calls_of, ok, refused, refused_in

from gyre.trajectory import CallLogWriter, ExecutionRecord


def test_inspect_lists_executions_of_a_store_and_of_a_log(log: Path, store: Path) -> None:
    table = ok("inspect", store)
    assert all(execution in table for execution in EXECUTIONS)
    assert "6 executions" in table
    found = json.loads(ok("inspect", store, "--json"))
    assert found == json.loads(ok("inspect", log, "--json"))
    assert found["problems"] == []
    assert [row["refused"] for row in found["executions"]] == [1] * 6


def test_inspect_counts_one_as_one(tmp_path: Path) -> None:
    with CallLogWriter(tmp_path / "one.calls") as writer:
        for execution in EXECUTIONS[:2]:
            writer.append(calls_of(execution)[0])
            writer.append_execution(ExecutionRecord(execution, "g", 1.0))
    assert "1 group " in ok("inspect", tmp_path / "one.calls")
    assert "1 call, 15 unique tokens, 5 sampled, 5 trained; 1 leaf" in ok("inspect", tmp_path / "one.calls", "a/0")


def test_inspect_reports_what_of_a_log_cannot_be_read(log: Path, tmp_path: Path) -> None:
    torn = tmp_path / "torn.calls"
    torn.write_bytes(log.read_bytes()[:-9])
    for arguments in ((), ("a/0",)):
        text = ok("inspect", torn, *arguments)
        assert f"cannot be read: {torn}: " in text
        assert "the end of the log is torn" in text
        (problem,) = json.loads(ok("inspect", torn, *arguments, "--json"))["problems"]
        assert "the end of the log is torn" in problem


def test_json_has_no_number_that_json_lacks(tmp_path: Path) -> None:
    with CallLogWriter(tmp_path / "a.calls") as writer:
        writer.append(replace(calls_of(EXECUTIONS[0])[0], start_s=math.inf, end_s=-math.inf))
        writer.append_execution(ExecutionRecord(EXECUTIONS[0], "g", math.nan))

    def refuse(word: str) -> None:
        raise AssertionError(word)

    for arguments in ((), (EXECUTIONS[0],)):
        json.loads(ok("inspect", tmp_path / "a.calls", *arguments, "--json"), parse_constant=refuse)


def test_a_name_that_the_system_refuses_ends_in_one_line(store: Path, tmp_path: Path) -> None:
    long = tmp_path / ("n" * 300)
    for arguments in (
        ("inspect", long),
        ("build", long, "--out", tmp_path / "z"),
        ("inspect", store, "a/0", "--html", long),
        ("export", long, "--to", "lists", "--out", tmp_path / "a.jsonl"),
        ("export", store, "--to", "lists", "--out", f"{long}.jsonl"),
    ):
        assert "File name too long" in refused(*arguments)


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


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("inspect", "missing"), "cannot be read"),
        (("inspect", "/dev/null"), "not a regular file"),
        (("inspect", "STORE", "z/9"), "no execution 'z/9'; gyre samples inspect"),
        (("inspect", "LOG", "z/9"), "no execution 'z/9'; gyre samples inspect"),
        (("inspect", "STORE", "--html", "a.html"), "--html draws one execution"),
        (("inspect", "STORE", "a/0", "--select", "best"), "no selection 'best'"),
        (("inspect", "STORE", "a/0", "--select", "nowhere:at_all"), "cannot be loaded"),
        (("inspect", "STORE", "a/0", "--max-paths", "0"), "max_paths"),
        (("inspect", "STORE", "a/0", "--over-length", "wrap"), "over_length"),
        (("inspect", "STORE", "a/0", "--dedup", "word"), "dedup"),
        (("inspect", "STORE", "a/0", "--max-tokens", "1"), "max_tokens"),
    ],
)
def test_bad_input_of_inspect_ends_with_code_2_and_one_line(
    arguments: tuple[str, ...], says: str, store: Path, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert says in refused_in(tmp_path, arguments, STORE=store, LOG=log)
