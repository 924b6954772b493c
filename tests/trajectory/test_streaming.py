"""A step that is made group by group is the step that is made at once."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest
from stored_executions import assert_same, call, item

from gyre.errors import InputError
from gyre.trajectory.advantages import Baseline
from gyre.trajectory.building import build_tree
from gyre.trajectory.call import CallRecord
from gyre.trajectory.call_log import CallLog, CallLogWriter
from gyre.trajectory.check import Reason
from gyre.trajectory.execution import ExecutionRecord
from gyre.trajectory.making import make_samples
from gyre.trajectory.samples import Samples, concat
from gyre.trajectory.selection import Selection
from gyre.trajectory.store import TrajectoryStore
from gyre.trajectory.streaming import (
    Packing,
    build_store,
    packed_micro_steps,
    rebuild_store,
    step_samples,
    step_totals,
)
from gyre.trajectory.tree import Refusal

SELECTION = Selection(max_paths=3, seed=7)
SCORES = [0.0, 1.0, 0.5, None, 0.25, 1.0, 1.0, 1.0, None, 0.75]


@pytest.fixture
def store(tmp_path: Path) -> TrajectoryStore:
    """Groups g0 to g4 of two executions each, appended in pieces that cut across groups."""
    made = [item(f"e{number}", f"g{number % 5}", score=score, calls=9) for number, score in enumerate(SCORES)]
    made.append(item("empty", "g1", calls=0, score=1.0))
    store = TrajectoryStore.create(tmp_path / "store")
    store.append(made[:3])
    store.append(made[3:])
    return store


def at_once(store: TrajectoryStore) -> Samples:
    return make_samples(store.read_all(store.executions()["execution"].to_list()), SELECTION, Baseline.MEAN_STD)


def weights(samples: Iterable[Samples]) -> dict[tuple[str, int, int], float]:
    """Weight of each (execution, row in it, position)."""
    found = {}
    for part in samples:
        weight, rows_seen = part.loss_weights(), dict.fromkeys(part.executions.execution, 0)
        for row in range(part.rows):
            execution = part.executions.execution[part.row_execution[row]]
            for position, value in enumerate(weight[part.row(row)].tolist()):
                found[execution, rows_seen[execution], position] = value
            rows_seen[execution] += 1
    return found


def test_weights_are_those_of_the_whole_step(store: TrajectoryStore) -> None:
    whole = at_once(store)
    parts = list(step_samples(store, SELECTION, Baseline.MEAN_STD))
    assert len(parts) == 5
    assert weights(parts) == weights([whole])
    joined = concat(parts)
    assert joined.dropped == whole.dropped
    assert sorted(joined.tokens.tolist()) == sorted(whole.tokens.tolist())


def test_totals_are_counted_without_keeping_samples(store: TrajectoryStore) -> None:
    whole, totals = at_once(store), step_totals(store, SELECTION, Baseline.MEAN_STD)
    assert totals.executions == whole.executions.counted == 8
    assert totals.dropped == whole.dropped
    assert set(totals.dropped) == {"e3", "e8", "empty"}
    assert (totals.rows, totals.tokens) == (whole.rows, len(whole.tokens))
    assert totals.trained_tokens == np.count_nonzero(whole.loss_mask)


@pytest.mark.parametrize("packing", ["rows", "tree"])
def test_micro_steps_hold_all_weight_of_the_step(store: TrajectoryStore, packing: Packing) -> None:
    whole = at_once(store)
    steps = list(packed_micro_steps(store, SELECTION, Baseline.MEAN_STD, 200, packing))
    assert len(steps) >= 4
    assert max(map(len, steps)) <= 200
    trained = np.concatenate([step.loss_weights[step.loss_mask] for step in steps])
    expected = whole.loss_weights()[whole.loss_mask].astype(np.float32)
    np.testing.assert_array_equal(np.sort(trained), np.sort(expected))
    # Every execution that is trained has mean weights that sum to 1 / E.
    assert sum(float(step.mean_weights.sum()) for step in steps) == pytest.approx(1.0, rel=1e-6)


def test_a_step_of_some_groups_counts_these_alone(store: TrajectoryStore) -> None:
    chosen = ["g2", "g0"]
    executions = [execution for group in chosen for execution in store.groups()[group]]
    whole = make_samples(store.read_all(executions), SELECTION, Baseline.MEAN)
    assert weights(step_samples(store, SELECTION, Baseline.MEAN, groups=chosen)) == weights([whole])
    totals = step_totals(store, SELECTION, Baseline.MEAN, groups=chosen)
    assert weights(step_samples(store, SELECTION, Baseline.MEAN, groups=chosen, totals=totals)) == weights([whole])
    with pytest.raises(InputError, match="'g0' is in the step twice"):
        step_samples(store, SELECTION, Baseline.MEAN, groups=["g0", "g2", "g0"])
    with pytest.raises(InputError, match="no group 'g9'"):
        step_samples(store, SELECTION, Baseline.MEAN, groups=["g9"])


def records(execution: str, count: int) -> list[CallRecord]:
    return [call(execution, number, [1, 2, *range(3, 3 + number)], [50 + number]) for number in range(count)]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Executions a, b (group x) and c (group y) that ended and d that did not; one call of b is malformed."""
    path = tmp_path / "run.calls"
    with CallLogWriter(path) as writer:
        for number in range(4):
            for execution in "abcd":
                writer.append(records(execution, 4)[number])
        writer.append(call("b", 4, [1, 2], [3], logprobs=None))
        for execution, group in (("a", "x"), ("c", "y"), ("b", "x")):
            writer.append_execution(ExecutionRecord(execution, group, None if execution == "c" else 1.0))
    return path


def test_a_store_is_built_from_a_log(tmp_path: Path, log: Path) -> None:
    store, seen = TrajectoryStore.create(tmp_path / "store"), []
    with CallLog(log) as source:
        report = build_store(source, store, on_progress=lambda done, of: seen.append((done, of)))
    assert store.groups() == {"x": ("a", "b"), "y": ("c",)}
    assert_same(store.read("a"), (ExecutionRecord("a", "x", 1.0), build_tree(records("a", 4))))
    assert [refused.call_id for refused in store.read("b")[1].refused] == ["call-4"]
    assert (report.executions, report.known, report.unscored) == (3, 0, 1)
    assert (report.calls, report.refused) == (12, {Reason.MISSING_LOGPROBS: 1})
    assert report.unique_tokens == store.executions()["unique_tokens"].sum()
    assert report.sampled_tokens == store.executions()["sampled_tokens"].sum()
    assert report.size == store.size
    assert seen == [(1, 3), (2, 3), (3, 3)]


class Interrupted:
    """A log whose reader dies at one execution."""

    def __init__(self, log: CallLog, at: str) -> None:
        self._log, self._at = log, at

    def executions(self) -> tuple[ExecutionRecord, ...]:
        return self._log.executions()

    def read(self, execution: str) -> Iterator[CallRecord | Refusal]:
        if execution == self._at:
            raise KeyboardInterrupt
        return self._log.read(execution)


def test_an_interrupted_build_goes_on_where_it_was(tmp_path: Path, log: Path) -> None:
    store = TrajectoryStore.create(tmp_path / "store")
    with CallLog(log) as source:
        with pytest.raises(KeyboardInterrupt):
            build_store(Interrupted(source, "c"), store)
        assert store.groups() == {"x": ("a", "b")}
        report = build_store(source, store)
        assert (report.executions, report.known) == (1, 2)
        again = build_store(source, store)
        assert (again.executions, again.known) == (0, 3)
    assert store.verify() == []
    assert store.orphans() == []


def test_damaged_calls_of_a_log_are_refused_in_the_tree(tmp_path: Path, log: Path) -> None:
    content = log.read_bytes()
    with CallLog(log) as source:
        ids = next(iter(source.calls("c"))).output_ids.tobytes()
    at = content.find(ids, content.find(b'"execution":"c"'))
    log.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    store = TrajectoryStore.create(tmp_path / "store")
    with CallLog(log) as source:
        report = build_store(source, store)
    assert report.refused[Reason.UNREADABLE] == 1
    assert {refusal.reason for refusal in store.read("c")[1].refused} == {Reason.UNREADABLE}


def test_reading_goes_on_beside_a_build(tmp_path: Path, log: Path) -> None:
    store = TrajectoryStore.create(tmp_path / "store")
    failures: list[BaseException] = []
    stop = threading.Event()

    def read() -> None:
        reader = TrajectoryStore.open(store.path)
        while not stop.is_set():
            try:
                for execution in reader.executions()["execution"].to_list():
                    assert reader.read(execution)[1].unique_tokens == 9
            except BaseException as error:
                failures.append(error)
                return

    thread = threading.Thread(target=read)
    thread.start()
    try:
        for round_ in range(10):
            store.append([(ExecutionRecord(f"n{round_}", "g"), build_tree(records(f"n{round_}", 4)))])
            if round_ % 3 == 2:
                store.compact()
    finally:
        stop.set()
        thread.join()
    assert not failures


class Small:
    """Executions of one call and five tokens, `each` in a group; reading one may fail."""

    def __init__(self, executions: int, each: int, fail_at: str = "") -> None:
        self._records = [ExecutionRecord(f"e{number}", f"g{number // each}", 1.0) for number in range(executions)]
        self._fail_at = fail_at

    def executions(self) -> list[ExecutionRecord]:
        return self._records

    def read(self, execution: str) -> list[CallRecord]:
        if execution == self._fail_at:
            raise KeyboardInterrupt
        return [call(execution, 0, [1, 2], [3, 4, int(execution[1:])])]


def test_small_groups_are_stored_together(tmp_path: Path) -> None:
    store = TrajectoryStore.create(tmp_path / "store")
    report = build_store(Small(200, 2), store)
    assert (report.executions, len(store.groups())) == (200, 100)
    assert store.executions()["part"].n_unique() < 10  # of 100 changes, one for each group
    for execution in ("e0", "e77", "e199"):
        assert_same(store.read(execution), (store.read(execution)[0], build_tree(Small(1, 1).read(execution))))


def test_groups_that_wait_are_stored_when_the_build_ends_early(tmp_path: Path) -> None:
    store = TrajectoryStore.create(tmp_path / "store")
    with pytest.raises(KeyboardInterrupt):
        build_store(Small(40, 4, fail_at="e30"), store)
    assert list(store.groups()) == [f"g{number}" for number in range(7)]  # e30 is of g7
    assert build_store(Small(40, 4), store).known == 28
    assert store.executions()["execution"].to_list() == [f"e{number}" for number in range(40)]


def test_executions_are_built_again_where_that_is_asked_for(tmp_path: Path) -> None:
    store = TrajectoryStore.create(tmp_path / "store")
    store.append([item("e1", "old group"), item("e2", "g1")])
    report = build_store(Small(4, 2), store, renew=["e1", "e3"])
    assert (report.executions, report.renewed, report.known) == (3, 1, 1)
    assert store.executions()["execution"].to_list() == ["e1", "e2", "e0", "e3"]
    assert store.read("e1")[0].group == "g0"
    assert_same(store.read("e2"), item("e2", "g1"))


def test_a_store_is_replaced_by_what_is_built(tmp_path: Path) -> None:
    store = TrajectoryStore.create(tmp_path / "store")
    store.append([item("old")])
    with pytest.raises(KeyboardInterrupt):
        rebuild_store(Small(8, 2, fail_at="e7"), store.path)
    assert store.executions()["execution"].to_list() == ["old"]
    found, report = rebuild_store(Small(8, 2), store.path)
    assert (report.executions, report.size) == (8, found.size)
    assert found.groups() == {f"g{number}": (f"e{2 * number}", f"e{2 * number + 1}") for number in range(4)}
