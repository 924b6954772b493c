"""Importers, on small files written by hand in each format."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from gyre.errors import InputError
from gyre.workload import Kind, Report, Trace, validate
from gyre.workload.compile import compile_program
from gyre.workload.importers import FORMATS, import_trace

DATA = Path(__file__).parent / "data"
FOUND = {
    "kv_cache_tester": "kv-cache-tester",
    "claude_code": "claude-code",
    "mooncake.jsonl": "mooncake",
    "azure.csv": "azure",
    "atif": "atif",
    "atif_embedded.json": "atif",
    "lengths.csv": "lengths",
    "lengths.jsonl": "lengths",
}


def column(trace: Trace, name: str) -> list[Any]:
    return trace.calls[name].to_list()


def skipped(report: Report) -> dict[tuple[str, str], tuple[int, tuple[int, ...]]]:
    return {(found.table, found.rule): (found.count, found.rows) for found in report.of(Kind.SKIPPED)}


@pytest.mark.parametrize("name", FOUND)
def test_a_format_is_recognised_by_its_content_alone(name: str) -> None:
    assert [known for known, importer in FORMATS.items() if importer.detect(DATA / name)] == [FOUND[name]]


@pytest.mark.parametrize("name", FOUND)
def test_what_is_imported_is_valid_and_compiles(name: str) -> None:
    trace, _ = import_trace(DATA / name)
    assert validate(trace).ok
    assert compile_program(trace).calls == len(trace.calls)
    named, _ = import_trace(DATA / name, FOUND[name])
    assert named.calls.equals(trace.calls)


def test_claude_code_merges_lines_of_one_message_and_counts_cached_input() -> None:
    trace, report = import_trace(DATA / "claude_code")
    assert column(trace, "input_tokens") == [1000, 1100, 500, 660, 1200, 1300, 400]
    assert column(trace, "output_tokens") == [50, 40, 60, 20, 30, 200, 2]
    assert column(trace, "start_s") == pytest.approx([0.0, 3.5, 5.51, 11.51, 20.5, 30.0, 90.001])
    assert column(trace, "model_s") == pytest.approx([3.0, 2.0, 5.0, 8.49, 4.0, 60.0, 3.0])
    assert skipped(report) == {
        ("transcript.jsonl", "bad_line"): (1, (14,)),
        ("transcript.jsonl", "not_json"): (1, (15,)),
    }
    assert report.count("synthetic_message") == 1
    assert report.count("partial_output") == 1
    assert trace.executions["token_quality"].to_list() == ["inferred"]


def test_claude_code_sub_agents_are_threads_and_are_joined() -> None:
    trace, _ = import_trace(DATA / "claude_code")
    assert column(trace, "thread") == [0, 0, 1, 1, 0, 0, 0]
    assert column(trace, "parent_thread") == [None, None, 0, 0, None, None, None]
    assert column(trace, "agent")[2] == "Explore"
    assert column(trace, "after_call") == [None, 0, 1, 2, 1, 4, 5]
    assert column(trace, "wait_kind")[4] == "subagent_join"
    assert column(trace, "wait_s") == pytest.approx([0.0, 0.5, 0.01, 1.0, 0.5, 5.5, 0.001])


def test_claude_code_compaction_has_its_summary_call() -> None:
    trace, report = import_trace(DATA / "claude_code")
    assert report.count("summary_call") == 1
    assert column(trace, "role")[5:] == ["main_summary", "main"]
    assert column(trace, "relation") == ["root", "append", "root", "append", "append", "append", "compaction"]
    assert column(trace, "parent_call")[5:] == [4, 4]  # both hold a beginning of what the fifth call held
    assert column(trace, "prefix_tokens")[5:] == [1230, 100]
    assert column(trace, "dropped_tokens")[6] == 1130


def test_claude_code_reads_reward_outcome_and_group_from_metrics() -> None:
    trace, _ = import_trace(DATA / "claude_code")
    row = trace.executions.row(0, named=True)
    assert (row["execution_id"], row["group_id"]) == ("s-1", "bowling|tdd|x")
    assert (row["reward"], row["score_status"], row["wall_s"]) == (0.5, "scored", 100.0)
    assert (row["outcome"], row["censored"], row["human_in_loop"]) == ("harness_timeout", True, False)
    assert trace.groups["task"].to_list() == ["bowling"]
    tools = trace.tools.filter(pl.col("tool") == "Bash")
    assert tools["failed"].to_list() == [None, True]
    assert tools["duration_s"].to_list() == [None, 1.0]


def test_claude_code_side_lines_in_the_transcript_itself_are_a_thread(tmp_path: Path) -> None:
    """Versions before sub-agents had files of their own: chains of `parentUuid`, marked `isSidechain`."""
    main = (DATA / "claude_code" / "transcript.jsonl").read_text().splitlines(keepends=True)
    side = [
        json.loads(line) | {"uuid": f"u{n}", "parentUuid": None if n == 0 else f"u{n - 1}"}
        for n, line in enumerate((DATA / "claude_code/transcript-subagents/agent-a1.jsonl").open())
    ]
    for record in side:
        record.pop("agentId")
    lines = [*main[:6], *(json.dumps(record) + "\n" for record in side), *main[6:]]
    (tmp_path / "t.jsonl").write_text("".join(lines))
    trace, _ = import_trace(tmp_path / "t.jsonl")
    whole, _ = import_trace(DATA / "claude_code")
    assert trace.calls.drop("agent").equals(whole.calls.drop("agent"))


def test_claude_code_a_prompt_in_mid_session_is_a_person(tmp_path: Path) -> None:
    lines = (DATA / "claude_code" / "transcript.jsonl").read_text().splitlines(keepends=True)
    prompt = json.loads(lines[1]) | {"timestamp": "2026-01-01T00:00:04.500Z"}
    (tmp_path / "t.jsonl").write_text("".join([*lines[:5], json.dumps(prompt) + "\n", *lines[5:8]]))
    trace, _ = import_trace(tmp_path / "t.jsonl")
    assert trace.executions["human_in_loop"].to_list() == [True]
    assert column(trace, "wait_kind") == ["start", "human", "tool"]
    assert column(trace, "wait_s")[1] == pytest.approx(1.5)


def test_claude_code_copies_of_one_session_stay_apart(tmp_path: Path) -> None:
    for name in ("a", "b"):
        shutil.copytree(DATA / "claude_code", tmp_path / name)
    trace, _ = import_trace(tmp_path)
    assert trace.executions["execution_id"].to_list() == ["s-1", "s-1#2"]
    assert trace.groups["n_executions"].to_list() == [2]


def test_kv_cache_tester_prefixes_are_exact_to_a_block() -> None:
    trace, report = import_trace(DATA / "kv_cache_tester")
    assert column(trace, "parent_call") == [None, None, 1, 0, 3, 4]
    assert column(trace, "relation") == ["root", "root", "append", "append", "append", "branch"]
    assert column(trace, "prefix_tokens") == [0, 0, 64, 192, 320, 128]
    assert column(trace, "dropped_tokens") == [0, 0, 0, 0, 0, 256]
    assert skipped(report) == {("session.json", "bad_request"): (1, (5,))}


def test_kv_cache_tester_sub_agents_end_at_their_time() -> None:
    trace, _ = import_trace(DATA / "kv_cache_tester")
    assert column(trace, "start_s") == [0.0, 2.5, 12.5, 24.0, 90.0, 95.0]
    assert column(trace, "wait_kind") == ["start", "start", "tool", "subagent_join", "human", "tool"]
    assert column(trace, "wait_s")[3] == pytest.approx(24.0 - 15.0)


def test_mooncake_links_requests_that_extend_one_another() -> None:
    trace, report = import_trace(DATA / "mooncake.jsonl")
    assert trace.executions["execution_id"].to_list() == ["mooncake:1", "mooncake:2", "mooncake:4"]
    assert column(trace, "prefix_tokens") == [0, 1024, 1536, 0, 0]
    assert column(trace, "wait_s") == [0.0, 2.5, 6.5, 0.0, 0.0]
    assert report.count("session") == 2
    assert skipped(report) == {
        ("mooncake.jsonl", "bad_request"): (1, (6,)),
        ("mooncake.jsonl", "not_json"): (1, (7,)),
    }


def test_azure_rows_are_executions_of_one_call() -> None:
    trace, report = import_trace(DATA / "azure.csv")
    assert column(trace, "input_tokens") == [4808, 110]
    assert column(trace, "output_tokens") == [10, 27]
    assert skipped(report) == {("azure.csv", "bad_row"): (2, (3, 5))}
    assert report.of(Kind.SKIPPED)[0].example.endswith("ContextTokens=many, GeneratedTokens=8")


def test_a_duration_is_a_pure_wait() -> None:
    trace, report = import_trace(DATA / "lengths.csv")
    assert column(trace, "wait_s") == [3600.0, 120.5, 30.0]
    assert column(trace, "input_tokens") == column(trace, "output_tokens") == [1, 1, 1]
    assert trace.executions["reward"].to_list() == [1.0, 0.0, None]
    assert trace.groups.select("group_id", "n_executions").rows() == [("a", 2), ("b", 1)]
    assert skipped(report) == {("lengths.csv", "bad_row"): (2, (4, 5))}


def test_tokens_are_one_call_of_that_many_output_tokens() -> None:
    trace, report = import_trace(DATA / "lengths.jsonl")
    assert column(trace, "output_tokens") == [1000, 2000]
    assert column(trace, "wait_s") == [0.0, 0.0]
    assert trace.executions["execution_id"].to_list() == ["x", "lengths:2"]
    assert trace.executions["wall_s"].to_list() == [None, 60.0]
    assert skipped(report) == {("lengths.jsonl", "not_json"): (1, (5,)), ("lengths.jsonl", "bad_row"): (2, (3, 4))}


def test_atif_steps_are_calls_and_references_are_threads() -> None:
    trace, report = import_trace(DATA / "atif")
    assert column(trace, "input_tokens") == [1000, 1100, 300, 350, 1200, 400]
    assert column(trace, "thread") == [0, 0, 1, 1, 0, 0]
    assert column(trace, "relation") == ["root", "append", "root", "append", "append", "compaction"]
    assert column(trace, "wait_kind") == ["start", "tool", "start", "tool", "subagent_join", "queue"]
    assert column(trace, "start_s") == [0.0, 4.0, 10.0, 20.0, 35.0, 50.0]
    assert column(trace, "model_s") == [4.0, 6.0, 10.0, 10.0, 5.0, 5.0]
    assert column(trace, "wait_s") == [0.0, 0.0, 0.0, 0.0, 5.0, 10.0]
    assert trace.executions.select("execution_id", "group_id", "reward").rows() == [("run-1", "hello", 1.0)]
    assert skipped(report) == {("trajectory.json", "bad_step"): (1, (7,))}
    assert trace.tools["tool"].to_list() == ["bash", "delegate"]


def test_atif_without_times_keeps_the_order_of_steps_and_joins() -> None:
    trace, report = import_trace(DATA / "atif_embedded.json")
    assert column(trace, "thread") == [0, 1, 0]
    assert column(trace, "wait_kind") == ["start", "start", "subagent_join"]
    assert compile_program(trace).dependencies.tolist() == [0, 1, 2]
    assert report.count("sub_agent_missing") == 1
    assert trace.executions["time_quality"].to_list() == ["absent"]


def test_atif_does_not_follow_a_reference_out_of_its_folder(tmp_path: Path) -> None:
    shutil.copytree(DATA / "atif", tmp_path / "in")
    (tmp_path / "in" / "sub.json").rename(tmp_path / "sub.json")
    document = (tmp_path / "in" / "trajectory.json").read_text().replace("sub.json", "../sub.json")
    (tmp_path / "in" / "trajectory.json").write_text(document)
    trace, report = import_trace(tmp_path / "in")
    assert set(column(trace, "thread")) == {0}
    assert report.count("sub_agent_missing") == 1


def test_a_trace_folder_is_loaded_as_it_is(tmp_path: Path) -> None:
    trace, _ = import_trace(DATA / "claude_code")
    trace.write(tmp_path / "t")
    again, _ = import_trace(tmp_path / "t")
    assert again.calls.equals(trace.calls)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.jsonl", '{"a": 1}\n', "its format is not recognised; name it with --format"),
        ("a.csv", "x,y\n1,2\n", "its format is not recognised"),
        ("a.json", "{", "its format is not recognised"),
        ("a.csv", "group,tokens,TIMESTAMP,ContextTokens,GeneratedTokens\n", "could be azure, lengths; choose one"),
        ("a.csv", "group,tokens\na,many\n", "holds no usable row of lengths"),
        ("a.json", '{"schema_version": "ATIF-v1.4", "steps": []}', "holds no ATIF trajectory with a model call"),
        ("a.json", '{"requests": [], "block_size": 64}', "holds no kv-cache-tester session"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        import_trace(tmp_path / name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("known", FORMATS)
def test_a_wrong_format_is_refused_in_one_line(tmp_path: Path, known: str) -> None:
    (tmp_path / "a.txt").write_text("hello\n")
    with pytest.raises(InputError) as caught:
        import_trace(tmp_path / "a.txt", known)
    assert "\n" not in str(caught.value)


def test_unknown_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file or folder"):
        import_trace(tmp_path / "nowhere")
    with pytest.raises(
        InputError, match="--format parchment: no such format; choose one of kv-cache-tester, claude-code"
    ):
        import_trace(DATA / "azure.csv", "parchment")


def recorded_set(folder: Path, *, people: bool = False, **cells: Any) -> Path:
    """Two Parquet tables: a main thread of two calls with a sub-agent between; `cells` change the last call."""
    shared: dict[str, Any] = {"execution_id": "r", "agent_kind": "main", "finish": None, "model": "m", "cache_read": 0}
    begin = 1_700_000_000_000_000
    main: dict[str, Any] = shared | {"thread": "main", "role": "main", "dropped_tokens": 0}
    rows = [
        main
        | {"call_seq": 0, "parent_call_seq": None, "relation": "root", "prefix_tokens": 0, "input_tokens": 100_000},
        main
        | {"call_seq": 1, "thread": "a", "role": "sub_agent", "parent_call_seq": None, "relation": "root"}
        | {"prefix_tokens": 0, "input_tokens": 500},
        main
        | {"call_seq": 2, "parent_call_seq": 0, "relation": "branch", "prefix_tokens": 90, "input_tokens": 900}
        | cells,
    ]
    starts, waits = ((0, 40, 41), (None, 0, 31)) if people else ((0, 11, 41), (None, None, 31))
    for row, start, wait in zip(rows, starts, waits, strict=True):
        row |= {"start_us": begin + start * 1_000_000, "llm_us": 10_000_000 if row["thread"] == "main" else 29_000_000}
        row |= {"wait_us": None if wait is None else wait * 1_000_000, "wait_kind": "tool", "output_tokens": 50}
    pl.DataFrame(rows).write_parquet(folder / "x.calls.parquet")
    execution = {"execution_id": "r", "source": "s", "group_id": "s:task|a|b", "harness": "h", "model": "m"}
    outcome = {"wall_us": 51_000_000, "outcome": "timeout", "reward": 1.0, "human_in_loop": people}
    pl.DataFrame([execution | outcome]).write_parquet(folder / "x.executions.parquet")
    return folder / "x.executions.parquet"


def test_recorded_parquet_marks_compactions_and_joins(tmp_path: Path) -> None:
    trace, report = import_trace(recorded_set(tmp_path))
    assert column(trace, "relation") == ["root", "root", "compaction"]
    assert column(trace, "wait_kind") == ["start", "start", "subagent_join"]
    assert column(trace, "wait_s") == pytest.approx([0.0, 1.0, 1.0])
    assert column(trace, "start_s") == [0.0, 11.0, 41.0]
    assert report.count("compaction") == 1
    row = trace.executions.row(0, named=True)
    assert (row["outcome"], row["censored"], row["reward"]) == ("harness_timeout", True, 1.0)
    assert trace.groups["task"].to_list() == ["task"]


def test_recorded_parquet_moves_sub_agents_stamped_with_their_end(tmp_path: Path) -> None:
    trace, report = import_trace(recorded_set(tmp_path, people=True))
    assert column(trace, "start_s") == [0.0, 11.0, 41.0]
    assert column(trace, "wait_kind")[2] == "subagent_join"
    assert report.count("sub_agent_start") == 1


@pytest.mark.parametrize("cells", [{"parent_call_seq": 7}, {"relation": "cousin"}, {"input_tokens": -1}])
def test_recorded_parquet_skips_a_bad_call(tmp_path: Path, cells: dict[str, Any]) -> None:
    trace, report = import_trace(recorded_set(tmp_path, **cells))
    assert len(trace.calls) == 2
    assert report.count("bad_call") == 1


def test_recorded_parquet_names_a_missing_column(tmp_path: Path) -> None:
    path = recorded_set(tmp_path)
    pl.read_parquet(path).drop("reward").write_parquet(path)
    with pytest.raises(InputError, match="a column is missing") as caught:
        import_trace(path)
    assert "\n" not in str(caught.value)
