"""Tables of lengths: what is read, what is said of those that cannot be, and fits to nothing but durations."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from gyre.errors import InputError
from gyre.workload.description.variance import between_group_share
from gyre.workload.fitting import fit_profile, goodness_of_fit
from gyre.workload.importers import import_trace
from gyre.workload.importers.lengths_columns import is_lengths
from gyre.workload.profiles import Profile, parse_profile, profile_toml
from gyre.workload.profiles.bounds import MOST_SECONDS
from gyre.workload.profiles.generate import generate
from gyre.workload.trace import Trace

MOST_CHARACTERS = 400
SIGMA_GROUP, SIGMA_OWN, MEDIAN_S = 0.7, 0.6, 600.0


def message(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        import_trace(path)
    text = str(caught.value)
    assert "\n" not in text
    assert "\r" not in text
    return text


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("Gruppe,Tokens\na,1\n", "it holds 'Gruppe', 'Tokens'"),
        ("group,length\na,1\n", "needs the columns `group` and `tokens` or `duration_s`; it holds 'group', 'length'"),
        ("tokens\n1\n", "it holds 'tokens'"),
        ("group;tokens\na;1\n", "parted by semicolons"),
        ("Group\ttokens\na\t1\n", "parted by tabs"),
        ("group,tokens,output_tokens\na,1,2\n", "'tokens' and 'output_tokens' mean the same"),
        ("group,Group,tokens\na,b,2\n", "'group' and 'Group' mean the same"),
        ("group,tokens\ra,1\r" + "b,2\r" * 2000, "CR alone"),
        ("x," * 2000 + "\n1\n", "and 1993 more"),
        ("x" * 5000 + "\n1\n", "it holds 'xxx"),
        ("", "it has none"),
        ("group,tokens\n", "no row below its header"),
        ("group,tokens\na,many\nb,0\n", "file lines 2, 3.*tokens = many is no finite number"),
        ("group,tokens\na,0\n", "tokens = 0 is out of range"),
        ("group,tokens\n,5\n", "no group"),
        ("group,duration_s\na,\n", "neither tokens nor a duration"),
        ("group,duration_s\na,-1\n", "duration_s = -1 is out of range"),
        ("group,tokens,reward\na,1,nan\n", "reward = nan is no finite number"),
    ],
)
def test_a_table_that_is_no_lengths_file_is_told_why(tmp_path: Path, content: str, says: str) -> None:
    text = message(tmp_path / "a.csv", content.encode())
    assert re.search(says, text), text
    assert len(text.replace(str(tmp_path), "")) < MOST_CHARACTERS


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("group,tokens\ncafé,1\n".encode("latin-1"), "not UTF-8"),
        ("group,tokens\na,1\n".encode("utf-16"), "UTF-16"),
    ],
)
def test_another_encoding_is_named(tmp_path: Path, content: bytes, says: str) -> None:
    assert says in message(tmp_path / "a.csv", content)


def test_a_group_in_another_encoding_far_down_is_skipped_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"group,tokens\n" + b"a,1\n" * 40_000 + "caf\u00e9,1\n".encode("latin-1"))
    trace, report = import_trace(path)
    assert len(trace.executions) == 40_000
    assert report.count("bad_row") == 1
    assert "not UTF-8" in report.findings[0].example


@given(st.sampled_from(["group", "group_id"]), st.sampled_from(["tokens", "duration", "duration_s"]), st.data())
def test_names_of_columns_may_differ_in_case(group: str, length: str, data: st.DataObject) -> None:
    upper = [data.draw(st.lists(st.booleans(), min_size=len(name), max_size=len(name))) for name in (group, length)]
    names = [
        "".join(letter.upper() if up else letter for letter, up in zip(name, ups, strict=True))
        for name, ups in zip((group, length), upper, strict=True)
    ]
    assert is_lengths(names)


def test_a_header_in_capitals_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("Group,Tokens\na,7\n")
    trace, report = import_trace(tmp_path / "a.csv")
    assert trace.calls["output_tokens"].to_list() == [7]
    assert report.ok
    assert not report.findings  # no model time anywhere: nothing to note


def durations(tmp_path: Path, groups: int = 300, members: int = 4) -> Trace:
    rng = np.random.default_rng(1)
    log = SIGMA_GROUP * rng.standard_normal((groups, 1)) + SIGMA_OWN * rng.standard_normal((groups, members))
    rows = [f"g{group},{MEDIAN_S * np.exp(value)}" for group, line in enumerate(log) for value in line]
    (tmp_path / "a.csv").write_text("group,duration_s\n" + "\n".join(rows))
    return import_trace(tmp_path / "a.csv")[0]


def test_durations_alone_come_back_from_the_fit(tmp_path: Path) -> None:
    trace = durations(tmp_path)
    profile = fit_profile(trace, "own")
    assert profile.first_wait_s is not None
    assert profile.first_wait_s.median == pytest.approx(MEDIAN_S, rel=0.12)
    assert profile.first_wait_s.sigma_group == pytest.approx(SIGMA_GROUP, rel=0.12)
    assert profile.first_wait_s.sigma == pytest.approx(SIGMA_OWN, rel=0.12)
    assert parse_profile(profile_toml(profile), where="t") == profile
    found = {one.quantity: one for one in goodness_of_fit(trace, profile).comparisons}
    assert found["duration_s"].ks < 0.06
    assert found["duration_s"].mean_ratio == pytest.approx(1.0, abs=0.1)
    again = generate(profile, groups=300, seed=5)
    wait, group = np.log(again.calls["wait_s"].to_numpy()), np.repeat(np.arange(300), 4)
    assert stats.ks_2samp(wait, np.log(trace.calls["wait_s"].to_numpy())).statistic < 0.06
    expected = SIGMA_GROUP**2 / (SIGMA_GROUP**2 + SIGMA_OWN**2)
    assert between_group_share(wait, group) == pytest.approx(expected, abs=0.1)


def fitted(values: list[float], folder: Path) -> Profile:
    rows = [f"g{number // 2},{value!r}" for number, value in enumerate(values)]
    (folder / "a.csv").write_text("group,duration_s\n" + "\n".join(rows))
    return fit_profile(import_trace(folder / "a.csv")[0], "own")


@settings(max_examples=20, deadline=None)
@given(st.lists(st.floats(0.0, MOST_SECONDS), min_size=2, max_size=30))
def test_any_durations_give_finite_waits_no_longer_than_the_longest(values: list[float]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        profile = fitted(values, Path(folder))
    waits = generate(profile, groups=3, seed=0).calls["wait_s"].to_numpy()
    assert np.isfinite(waits).all()
    assert waits.max(initial=0.0) <= max(*values, 0.001) * 1.001  # figures are rounded to four digits


def test_durations_beyond_what_a_profile_may_hold_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"first_wait_s\.\w+: must lie between"):
        fitted([1.0, 1e11, 2e11], tmp_path)
