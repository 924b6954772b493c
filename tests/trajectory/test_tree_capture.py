"""What was recorded besides tokens: broken-off calls, versions, duplicates, other models, media, refusals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tree_reading import assert_same, node_paths, record, records

from gyre.errors import InputError
from gyre.role import Role
from gyre.trajectory.building import TreeBuilder, build_tree
from gyre.trajectory.call import CallRecord, Finish, Media
from gyre.trajectory.check import Reason


def test_broken_off_and_resumed_call_keeps_the_version_of_each_token() -> None:
    tree = build_tree(
        [
            record(0, [1], [2, 3], finish=Finish.ABORT, versions=np.array([1, 1], np.int32)),
            record(1, [1, 2, 3], [4], versions=np.array([2], np.int32)),
        ]
    )
    assert (tree.sampled_tokens, len(tree.leaf_node), tree.refused) == (3, 1, ())
    assert tree.versions.tolist() == [1, 1, 2]


@pytest.mark.parametrize("finish", [Finish.ABORT, Finish.ERROR])
def test_broken_off_call_that_was_sampled_anew_is_dropped(finish: Finish) -> None:
    tree = build_tree([record(0, [1], [2, 3], finish=finish), record(1, [1], [2, 5])])
    assert tree.tokens.tolist() == [1, 2, 5]
    assert [(found.call_id, found.reason) for found in tree.refused] == [("c0", Reason.ABORT_WITHOUT_CONTINUATION)]
    assert "c0" in tree.refused[0].text
    assert tree.calls.call_id == ("c1",)


def test_chain_that_breaks_off_is_dropped_to_its_start() -> None:
    # 1 goes on from 0, and 2 from 1, but 2 broke off too; 3 ends elsewhere.
    broken = [record(n, [*range(1, 2 * n + 2)], [2 * n + 2], finish=Finish.ABORT) for n in range(3)]
    assert build_tree([*broken, record(3, [9], [8])]).calls.call_id == ("c3",)
    kept = build_tree([*broken, record(3, [1, 2, 3, 4, 5, 6, 7], [8])])
    assert kept.calls.call_id == ("c0", "c1", "c2", "c3")


def test_dropped_call_comes_back_when_a_later_one_goes_on_from_it() -> None:
    builder = TreeBuilder("e")
    builder.add(record(0, [1], [2], finish=Finish.ABORT))
    assert builder.tree().unique_tokens == 0
    builder.add(record(1, [1, 2, 3], [4]))
    assert builder.tree().calls.call_id == ("c0", "c1")
    assert builder.tree().refused == ()


@pytest.mark.parametrize("finish", list(Finish))
def test_call_without_output_changes_nothing(finish: Finish) -> None:
    calls = records(([1], [2]), ([1, 2, 3], [4]))
    assert_same(build_tree([*calls, record(2, [1, 2, 3, 4, 5, 6], [], finish=finish)]), build_tree(calls))


def test_undelivered_reply_is_left_out_and_reported() -> None:
    tree = build_tree([*records(([1], [2])), record(1, [1], [3], delivered=False)])
    assert tree.tokens.tolist() == [1, 2]
    assert [(found.call_id, found.reason) for found in tree.refused] == [("c1", Reason.NOT_DELIVERED)]


@pytest.mark.parametrize("other", [{"by_policy": False, "logprobs": None}, {"role": Role.SIDE}])
def test_tokens_of_another_model_or_a_side_call_are_context(other: dict[str, object]) -> None:
    tree = build_tree([record(0, [1], [2, 3], **other), record(1, [1], [2, 4])])
    assert tree.calls.trainable.tolist() == [False, True]
    paths = node_paths(tree)
    assert {paths[node] for node in np.flatnonzero(tree.node_owner >= 0)} == {(1, 2), (1, 2, 4)}
    assert set(tree.node_owner[tree.node_owner >= 0].tolist()) == {1}


def test_first_committed_log_probability_and_version_stand() -> None:
    calls = [
        record(7, [1], [2, 3], logprobs=np.float32([-0.5, -0.25]), versions=np.int32([3, 4])),
        record(4, [1], [2, 3, 9], logprobs=np.float32([-0.75, -0.25, -1]), versions=np.int32([1, 2, 2])),
    ]
    tree = build_tree(calls)
    assert tree.calls.call_id == ("c4", "c7")
    assert tree.logprobs.tolist() == [-0.75, -0.25, -1]
    assert tree.versions.tolist() == [1, 2, 2]
    assert (tree.duplicate_tokens, tree.max_logprob_difference) == (2, 0.25)


def test_unknown_versions_are_minus_one() -> None:
    assert build_tree(records(([1], [2, 3]))).versions.tolist() == [-1, -1]


def test_equal_placeholders_of_different_content_do_not_merge() -> None:
    def shown(sequence: int, digest: str, length: int = 2) -> CallRecord:
        return record(sequence, [1, 7, 7, 7, 2], [3 + sequence], media=(Media(1, length, digest),))

    tree = build_tree([shown(0, "cat"), shown(1, "dog"), shown(2, "cat"), shown(3, "cat", length=3)])
    assert tree.tokens.tolist() == [1, 7, 7, 7, 2, 3, 5, 7, 7, 7, 2, 4, 7, 7, 7, 2, 6]
    assert tree.media_position.tolist() == [1, 7, 12]
    assert tree.media_length.tolist() == [2, 2, 3]
    assert tree.media_digest == ("cat", "dog", "cat")


def test_media_merge_by_content_not_by_place_and_in_any_order() -> None:
    calls = [
        record(0, [7, 1, 7], [2], media=(Media(0, 1, "x"), Media(2, 1, "y"))),
        record(1, [7, 1, 7, 2, 7], [4], media=(Media(0, 1, "x"), Media(2, 1, "y"), Media(4, 1, "x"))),
        record(2, [7, 1, 7], [2]),  # the same ids as plain tokens
    ]
    tree = build_tree(calls)
    assert tree.unique_tokens == 6 + 4
    assert tree.media_digest == ("x", "y", "x")
    assert_same(build_tree(reversed(calls)), tree)


def test_negative_token_is_refused_wherever_it_stands() -> None:
    media = (Media(0, 1, "x"),)
    first = record(0, [5, 1], [2], media=media)  # its stand-in within the tree is negative too
    bad = [
        record(1, [-1, 1], [2]),
        record(2, [5, 1, -1], [2]),
        record(3, [5, 1], [-7]),
        record(4, [5, 1] * 200, [2, -2]),
        record(5, [5, -3], [2], media=media),
        record(6, [-5, 3], []),
    ]
    tree = build_tree([first, *bad])
    assert [found.reason for found in tree.refused] == [Reason.NEGATIVE_TOKEN] * len(bad)
    assert_same(build_tree([*bad, first]), tree)
    assert tree.tokens.tolist() == [5, 1, 2]


def test_ids_that_equal_a_stand_in_are_refused_within_a_long_run() -> None:
    run = [7, *range(300)]
    first = record(0, run, [2], media=(Media(0, 1, "x"),))
    tree = build_tree([first, *(record(1 + n, [-1 - n, *run[1:]], [2]) for n in range(3))])
    assert [found.reason for found in tree.refused] == [Reason.NEGATIVE_TOKEN] * 3
    assert tree.tokens.tolist() == [*run, 2]


def test_refused_calls_are_kept_with_their_reasons() -> None:
    builder = TreeBuilder("e")
    assert builder.add(record(0, [1], [2])) is None
    found = [
        builder.add(record(1, [], [2])),
        builder.add(record(2, [1], [2], logprobs=None)),
        builder.add(record(3, [1], [2], channels={"reward": np.zeros(0)})),
        builder.add(record(4, [1], [3], call_id="c0")),
        builder.add(record(0, [1], [3], call_id="other")),
    ]
    reasons = [refusal.reason if refusal else None for refusal in found]
    assert reasons == [
        Reason.EMPTY_INPUT,
        Reason.MISSING_LOGPROBS,
        Reason.CHANNEL_LENGTH,
        Reason.DUPLICATE_CALL,
        Reason.DUPLICATE_CALL,
    ]
    tree = builder.tree()
    assert sorted(tree.refused, key=lambda refusal: refusal.text) == sorted(
        (refusal for refusal in found if refusal), key=lambda refusal: refusal.text
    )
    assert tree.tokens.tolist() == [1, 2]


def test_refused_call_leaves_its_id_to_a_good_one() -> None:
    bad, good = record(0, [1], [2], logprobs=None), record(0, [1], [2])
    assert_same(build_tree([bad, good]), build_tree([good, bad]))
    assert build_tree([bad, good]).unique_tokens == 2


def test_call_of_another_execution_is_an_error() -> None:
    with pytest.raises(InputError, match="'other'"):
        build_tree(records(([1], [2])), "other")
    with pytest.raises(InputError, match="no calls"):
        build_tree([])


def test_tree_of_no_calls_is_empty() -> None:
    tree = build_tree([], "e")
    assert (tree.unique_tokens, tree.sampled_tokens, len(tree.leaf_node), len(tree.calls)) == (0, 0, 0, 0)
    assert tree.node_start.tolist() == tree.sampled_start.tolist() == [0]


def test_harness_is_the_callers_or_that_of_the_first_call() -> None:
    calls = [record(1, [1], [2], harness="b"), record(0, [1], [3], harness="a"), record(2, [1], [4])]
    assert build_tree(calls).harness == "a"
    assert build_tree(calls, harness="mine").harness == "mine"


@given(st.integers(0, 3))
def test_arrays_may_be_read_only_or_stand_at_any_byte(shift: int) -> None:
    ids = np.arange(1, 200, dtype=np.int32)
    raw = bytes(shift) + ids.tobytes()
    plain = record(0, ids, [5, 6])
    moved = record(0, [1], [5, 6])
    object.__setattr__(moved, "input_ids", np.frombuffer(raw, np.int32, offset=shift))
    assert_same(build_tree([moved]), build_tree([plain]))


def test_arrays_of_a_call_are_not_kept() -> None:
    call = record(0, [1, 2], [3, 4], versions=np.array([5, 6], np.int32))
    builder = TreeBuilder("e")
    builder.add(call)
    assert call.logprobs is not None
    assert call.versions is not None
    for array in (call.input_ids, call.output_ids, call.logprobs, call.versions):
        array[:] = 77
    tree = builder.tree()
    builder.add(record(1, [1, 2, 3, 4], [5]))
    builder.tree().tokens[:] = 99
    assert (tree.tokens.tolist(), tree.logprobs.tolist(), tree.versions.tolist()) == ([1, 2, 3, 4], [-0.5] * 2, [5, 6])
    assert builder.tree().tokens.tolist() == [1, 2, 3, 4, 5]
