"""Profiles: what is refused and how, the round trip through TOML, the bundled ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_profile import small_profile

from gyre.errors import InputError
from gyre.workload.profiles import load_profile, parse_profile, profile_names, profile_toml

BUNDLED = ("coding-katas", "deepswe", "nl2repo-122b", "nl2repo-2.4t", "reasoning", "terminal-bench")


def refusal(text: str) -> str:
    with pytest.raises(InputError) as caught:
        parse_profile(text, where="mine.toml")
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith("mine.toml: ")
    return message


def test_toml_round_trip_gives_an_equal_profile() -> None:
    profile = small_profile(description='quotes " and \\ and é', compaction=None)
    assert parse_profile(profile_toml(profile), where="x") == profile


def test_an_unknown_key_is_refused_by_name() -> None:
    text = profile_toml(small_profile()).replace("[calls]\n", "[calls]\nmedain = 3.0\n")
    assert "calls.medain: unknown key" in refusal(text)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("cells = 2", "cells = 0", "cells"),
        ("overall_s = 3600.0", "overall_s = -1.0", "timeouts.overall_s"),
        ("tail_share = 0.02", "tail_share = 1.5", "output_tokens.tail_share"),
        ("tail_from = 500.0", "tail_from = 5000.0", "tail_from below cap"),
        ("threshold_tokens = 2500", "threshold_tokens = 900", "below compaction.threshold_tokens"),
        ("median = 10.0", "median = nan", "calls.median"),
        ("[provenance]", "[provenance", "not TOML"),
        ('hardware = "qwen3-8b-tp1"', "", "hardware"),
    ],
)
def test_bad_values_are_refused_in_one_line(old: str, new: str, says: str) -> None:
    text = profile_toml(small_profile())
    assert old in text
    assert says in refusal(text.replace(old, new))


def test_a_file_is_named_by_its_ending(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text(profile_toml(small_profile()))
    assert load_profile(file) == load_profile(str(file)) == small_profile()
    with pytest.raises(InputError, match=r"missing\.toml: cannot be read"):
        load_profile(tmp_path / "missing.toml")


def test_an_unknown_name_lists_the_bundled_ones() -> None:
    with pytest.raises(InputError, match="no such bundled profile; choose coding-katas"):
        load_profile("nl2repo")


def test_the_bundled_profiles_load_and_say_where_their_figures_come_from() -> None:
    assert profile_names() == BUNDLED
    for name in BUNDLED:
        profile = load_profile(name)
        assert profile.name == name
        tables = {field for field, value in profile if hasattr(value, "model_fields_set")}
        assert tables - {"training", "nominal"} <= set(profile.provenance), name
