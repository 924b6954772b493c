"""Samples handed to other trainers and taken back: each token keeps its factor in the loss."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exchange_reductions import REDUCTIONS, Coefficients
from exchange_samples import Edge, assembled, defined_coefficients, samples_of_a_step
from hypothesis import given, settings

from gyre.errors import InputError
from gyre.trajectory.exchange import FORMATS, export, formats, load, read, write
from gyre.trajectory.samples import SampleExecutions, Samples

FLOAT32 = {"verl", "trl", "tinker"}  # formats that carry weights in float32
CHOICES: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in FORMATS),
    ("verl", {"loss_agg_mode": "token-mean"}),
    ("verl", {"loss_agg_mode": "seq-mean-token-sum"}),
]


def needed(format: str) -> None:
    """Skip where the format's own package is not there."""
    if format == "torch":
        pytest.importorskip("torch", reason="format torch returns tensors")


def named(samples: Samples, format: str) -> dict[str, str]:
    """What an execution is called in the format, by its name."""
    table = samples.executions
    if format != "skyrl":
        return {name: name for name in table.execution}
    trained = [name for name, count in zip(table.execution, table.trained_tokens, strict=True) if count]
    group = dict(zip(table.execution, table.group, strict=True))
    names: dict[str, str] = {}
    for name in trained:
        siblings = [one for one in trained if group[one] == group[name]]
        names[name] = f"{group[name]}_{siblings.index(name)}"
    return names


def assert_same(found: Coefficients, expected: dict[Edge, float], format: str) -> None:
    relative = 1e-6 if format in FLOAT32 else 1e-12
    assert found.keys() == expected.keys()
    for edge, weight in expected.items():
        assert found[edge] == pytest.approx(weight, rel=relative, abs=1e-37), edge


@pytest.fixture
def step() -> Samples:
    """Two executions of one group, one of another; the first has two rows that share a trained token."""
    rows = [
        {"execution": "a", "tokens": [1, 2, 3, 4], "loss_mask": [0, 1, 0, 1], "edges": [0, 1, 2, 3]},
        {"execution": "b", "tokens": [1, 2], "loss_mask": [0, 1], "edges": [0, 1]},
        {"execution": "a", "tokens": [1, 2, 9], "loss_mask": [0, 0, 1], "edges": [0, 1, 4]},
        {"execution": "c", "tokens": [5, 6, 7], "loss_mask": [0, 0, 1], "edges": [0, 1, 2]},
    ]
    return assembled(rows, ["a", "b", "c"], ["g", "g", "h"], [0.5, -0.5, 2.0])


def test_every_format_is_covered() -> None:
    assert set(formats()) == set(REDUCTIONS) == {name for name, _ in CHOICES}


@pytest.mark.parametrize(("format", "options"), CHOICES)
@given(samples=samples_of_a_step())
@settings(max_examples=40, deadline=None)
def test_the_trainers_mean_gives_each_token_its_weight(samples: Samples, format: str, options: dict[str, Any]) -> None:
    needed(format)
    names = named(samples, format)
    expected = {(names[name], prefix): weight for (name, prefix), weight in defined_coefficients(samples).items()}
    assert_same(REDUCTIONS[format](export(samples, format, **options)), expected, format)


@pytest.mark.parametrize(("format", "options"), CHOICES)
@given(samples=samples_of_a_step())
@settings(max_examples=40, deadline=None)
def test_a_round_trip_keeps_weights_tokens_and_logprobs(samples: Samples, format: str, options: dict[str, Any]) -> None:
    needed(format)
    back = load(export(samples, format, **options), format)
    names = named(samples, format)
    expected = {(names[name], prefix): weight for (name, prefix), weight in defined_coefficients(samples).items()}
    assert_same(defined_coefficients(back), expected, format)
    assert rows_of(back, {name: name for name in back.executions.execution}) == rows_of(samples, names)
    assert np.allclose(back.loss_weights().sum(), samples.loss_weights().sum(), rtol=1e-5, atol=1e-7)


def rows_of(samples: Samples, names: dict[str, str]) -> list[tuple[Any, ...]]:
    """Trained rows in a fixed order, with log-probabilities, without what formats lose."""
    found = []
    for row in range(samples.rows):
        at, name = samples.row(row), samples.executions.execution[samples.row_execution[row]]
        values = (samples.tokens[at].tolist(), samples.loss_mask[at].tolist(), samples.logprobs[at].tolist())
        if any(values[1]):
            found.append((names[name], *values))
    return sorted(found)


@given(samples=samples_of_a_step())
@settings(max_examples=40, deadline=None)
def test_arrays_come_back_bit_for_bit(samples: Samples) -> None:
    assert_equal(load(export(samples, "numpy"), "numpy"), samples)


def assert_equal(one: Any, other: Any) -> None:
    for field in fields(one):
        left, right = getattr(one, field.name), getattr(other, field.name)
        if isinstance(left, SampleExecutions):
            assert_equal(left, right)
        elif isinstance(left, np.ndarray):
            assert left.dtype == right.dtype
            assert np.array_equal(left, right, equal_nan=left.dtype.kind == "f"), field.name
        else:
            assert left == right, field.name


@given(samples=samples_of_a_step())
@settings(max_examples=40, deadline=None)
def test_shared_prefixes_are_found_again_without_edges(samples: Samples) -> None:
    rows = [{**row, "edges": None} for row in export(samples, "lists")]
    back = load(rows, "lists")
    for execution in range(len(back.executions.execution)):
        of_it = np.repeat(back.row_execution == execution, np.diff(back.row_start))
        pairs = set(zip(back.edges[of_it].tolist(), samples.edges[of_it].tolist(), strict=True))
        assert len(pairs) == len({one for one, _ in pairs}) == len({other for _, other in pairs})


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
@pytest.mark.parametrize("format", FORMATS)
def test_a_file_gives_back_what_was_exported(step: Samples, format: str, suffix: str, tmp_path: Path) -> None:
    needed(format)
    path = tmp_path / f"step{suffix}"
    write(step, format, path)
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
    again = read(format, path)
    assert_same(REDUCTIONS[format](again), REDUCTIONS[format](export(step, format)), format)
    assert rows_of(load(again, format), {name: name for name in load(again, format).executions.execution}) == rows_of(
        step, named(step, format)
    )


def test_fields_of_slime(step: Samples) -> None:
    first, *_, last = export(step, "slime")
    assert first["tokens"] == [1, 2, 3, 4]
    assert first["response_length"] == 3
    assert first["loss_mask"] == [1, 0, 1]
    assert first["rollout_log_probs"] == [-0.25, 0.0, -0.5]
    assert first["weight_versions"] == ["7"]
    assert [row["rollout_id"] for row in export(step, "slime")] == [0, 1, 0, 2]
    assert [row["reward"] for row in export(step, "slime")] == [0.5, -0.5, 0.5, 2.0]
    assert last["metadata"] == {"execution": "c", "group": "h", "raw_reward": 2.0}


def test_fields_of_verl(step: Samples) -> None:
    tensors = export(step, "verl", pad_token_id=99)["tensors"]
    assert tensors["prompts"].tolist() == [[99, 1], [99, 1], [1, 2], [5, 6]]
    assert tensors["responses"].tolist() == [[2, 3, 4], [2, 99, 99], [9, 99, 99], [7, 99, 99]]
    assert tensors["attention_mask"].tolist()[1] == [0, 1, 1, 0, 0]
    assert tensors["position_ids"].tolist()[1] == [0, 0, 1, 1, 1]  # clipped cumulative sum, as verl has it
    assert tensors["response_mask"].tolist()[0] == [1, 0, 1]
    weight = 0.5 / (3 * 3)
    assert tensors["advantages"][0].tolist() == pytest.approx([weight, 0, weight])
    assert {array.dtype.name for array in tensors.values()} == {"int64", "float32"}


def test_rows_of_skyrl_stand_by_group_and_execution() -> None:
    rows = [
        {"execution": name, "tokens": [1, token], "loss_mask": [0, 1], "edges": [0, token]}
        for name, token in [("a", 2), ("c", 2), ("b", 2), ("a", 3)]
    ]
    data = export(assembled(rows, ["a", "b", "c"], ["g", "g", "h"], [1.0, -1.0, 1.0]), "skyrl")
    assert [one.to_string() for one in data["trajectory_ids"]] == ["g_0", "g_0", "g_1", "h_0"]
    assert data["is_last_step"] == [False, True, True, True]


def test_tinker_is_shifted_by_one(step: Samples) -> None:
    first = export(step, "tinker")[0]
    inputs = first["loss_fn_inputs"]
    assert first["model_input"] == [1, 2, 3]
    assert inputs["target_tokens"].tolist() == [2, 3, 4]
    assert inputs["mask"].tolist() == [1, 0, 1]
    assert inputs["logprobs"].tolist() == [-0.25, 0.0, -0.5]


def test_an_execution_of_advantage_zero_stays_in_slimes_count() -> None:
    flat = assembled(
        [
            {"execution": "a", "tokens": [1, 2], "loss_mask": [0, 1], "edges": [0, 1]},
            {"execution": "b", "tokens": [1, 2], "loss_mask": [0, 1], "edges": [0, 1]},
        ],
        ["a", "b"],
        ["g", "g"],
        [0.0, 3.0],
    )
    assert REDUCTIONS["slime"](export(flat, "slime"))["b", (1, 2)] == 1.5
    assert load(export(flat, "slime"), "slime").executions.counted == 2


def test_a_row_that_trains_nothing_is_left_out_of_trainers_but_not_of_plain_rows(step: Samples) -> None:
    mask = step.loss_mask.copy()
    mask[step.row(2)] = False
    table = step.executions
    executions = replace(table, trained_tokens=np.array([2, 1, 1])).weighted(3)
    masked = replace(step, loss_mask=mask, executions=executions)
    assert len(export(masked, "slime")) == 3
    assert len(export(masked, "lists")) == 4


@pytest.mark.parametrize("format", ["slime", "skyrl", "prime-rl", "trl"])
def test_a_part_of_a_step_is_refused_where_the_trainer_counts(step: Samples, format: str) -> None:
    for part in (step.select_rows(np.array([0])), step.weighted(64)):
        with pytest.raises(InputError, match="part of a step"):
            export(part, format)


@pytest.mark.parametrize("format", ["verl", "tinker", "lists", "numpy"])
def test_parts_of_a_step_add_up_where_weights_are_absolute(step: Samples, format: str) -> None:
    total: dict[Edge, float] = {}
    for rows in ([0, 3], [1, 2]):
        for edge, weight in REDUCTIONS[format](export(step.select_rows(np.array(rows)), format)).items():
            total[edge] = total.get(edge, 0.0) + weight
    assert_same(total, defined_coefficients(step), format)


def test_slimes_own_rows_without_our_metadata() -> None:
    plain = {"tokens": [1, 2, 3], "response_length": 2, "reward": 1.0, "rollout_log_probs": [-1.0, -2.0]}
    samples = load([{**plain, "rollout_id": 4, "group_index": 1}, {**plain, "rollout_id": 4}, plain], "slime")
    assert samples.executions.execution == ("4", "row-2")
    assert samples.executions.trained_tokens.tolist() == [4, 2]
    assert samples.executions.advantage.tolist() == pytest.approx([1.0, 1.0])
    assert load([{**plain, "remove_sample": True}], "slime").executions.counted == 0


def test_skyrls_rewards_a_token_are_summed_and_the_last_step_counts(step: Samples) -> None:
    data = export(step, "skyrl")
    expected = defined_coefficients(load(data, "skyrl"))
    data["rewards"] = [
        [0.0] * (len(mask) - 1) + [reward] for mask, reward in zip(data["loss_masks"], data["rewards"], strict=True)
    ]
    data["rewards"][0] = [9.0] * len(data["rewards"][0])  # of a step that is not the last
    assert_same(defined_coefficients(load(data, "skyrl")), expected, "skyrl")


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ({"loss_mask": [1, 0]}, "first token is in the loss mask"),
        ({"loss_mask": [0]}, "loss_mask has 1 entries for 2 tokens"),
        ({"logprobs": [-1.0]}, "logprobs has 1 entries for 2 tokens"),
        ({"tokens": ["x", "y"]}, "tokens must be one list of numbers"),
        ({"tokens": [[1, 2]]}, "tokens must be one list of numbers"),
        ({"role": "chief"}, "there is no role 'chief'"),
        ({"loss_mask": [0, 1, 1], "tokens": [1, 2, 3], "loss_weights": [0, 1, 2]}, "differ in weight"),
    ],
)
def test_a_bad_row_is_refused_by_number(row: dict[str, Any], fault: str) -> None:
    good = {"tokens": [1, 2], "loss_mask": [0, 1], "loss_weights": [0.0, 0.5]}
    with pytest.raises(InputError, match=f"row 1: .*{fault}"):
        load([good, {**good, **row}], "lists")


def test_rows_of_one_execution_must_agree() -> None:
    row = {"tokens": [1, 2], "loss_mask": [0, 1], "execution": "a"}
    with pytest.raises(InputError, match="execution a: its rows differ in weight"):
        load([{**row, "loss_weights": [0, 0.5]}, {**row, "loss_weights": [0, 0.25]}], "lists")


def test_unknown_names_are_refused_with_the_known(step: Samples, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no format 'verll'; choose one of slime, miles, verl"):
        export(step, "verll")
    with pytest.raises(InputError, match="verl has no option pad; it has loss_agg_mode, pad_token_id"):
        export(step, "verl", pad=3)
    with pytest.raises(InputError, match="choose one of token-sum, token-mean"):
        export(step, "verl", loss_agg_mode="sum")
    with pytest.raises(InputError, match="field 'tokens' lacks"):
        load([{}], "lists")
    with pytest.raises(InputError, match=r"ends in \.jsonl or \.parquet"):
        write(step, "verl", tmp_path / "step.json")
    assert not list(tmp_path.iterdir())


def test_samples_without_a_trained_token_have_nothing_to_export(step: Samples) -> None:
    executions = replace(step.executions, trained_tokens=np.zeros(3, np.int64)).weighted(0)
    with pytest.raises(InputError, match="no trained token"):
        export(replace(step, loss_mask=np.zeros_like(step.loss_mask), executions=executions), "tinker")


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("step.jsonl", "{", "line 1: not JSON"),
        ("step.jsonl", "[1]", "line 1: not a JSON object"),
        ("step.parquet", "nothing", "cannot be read"),
        ("step.jsonl", json.dumps({"prompt_ids": [1]}), "field 'response_ids' of format verl lacks"),
    ],
)
def test_a_broken_file_is_refused_by_name(name: str, content: str, fault: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(InputError, match=f"step.*{fault}"):
        read("verl", path)
