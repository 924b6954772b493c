"""Bad settings end in one line that names the file, the field and what would do."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict, PositiveInt, model_validator

from gyre.errors import InputError
from gyre.toml_file import parse_toml, read_toml, toml_names, validated


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")

    size: PositiveInt = 1
    colour: str = "red"


class Outer(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str
    inner: Inner | None = None
    many: dict[str, Inner] = {}
    rows: tuple[tuple[int, ...], ...] = ()
    parts: list[Inner | bool] = []

    @model_validator(mode="after")
    def _named(self) -> Outer:
        if self.name == "nobody":
            raise ValueError("give\na name")
        return self


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({}, "f.toml: name: missing"),
        ({"name": "a", "inner": {"size": True}}, "f.toml: inner.size: true or false; give a number"),
        ({"name": "a", "many": {"x": {"size": True}}}, "f.toml: many.x.size: true or false; give a number"),
        ({"name": "a", "rows": [[1], [2, True]]}, "f.toml: rows.1.1: true or false; give a number"),
        ({"name": "a", "parts": [True, {"size": True}]}, "f.toml: parts.1.size: true or false; give a number"),
        ({"name": "a", "nme": "b"}, "f.toml: nme: unknown key; known keys: name, inner, many, rows, parts"),
        ({"nme": "b"}, "f.toml: nme: unknown key; known keys: name, inner, many, rows, parts (and 1 more)"),
        ({"name": "a", "inner": {"sise": 2}}, "f.toml: inner.sise: unknown key; known keys: size, colour"),
        ({"name": "a", "many": {"x": {"sise": 2}}}, "f.toml: many.x.sise: unknown key"),
        ({"name": "nobody"}, "f.toml: give a name"),
        ({"inner": {"size": -3}}, "f.toml: name: missing (and 1 more)"),
        (
            {"name": "a", "inner": {"size": -3}},
            "f.toml: inner.size: Input should be greater than 0 (got -3)",
        ),
    ],
)
def test_the_first_violation_is_one_line(values: object, says: str) -> None:
    with pytest.raises(InputError) as caught:
        validated(Outer, values, "f.toml")
    assert str(caught.value) == says


def test_a_remedy_ends_the_message() -> None:
    with pytest.raises(InputError, match=r"^f: name: missing; see the guide$"):
        validated(Outer, {}, "f", "see the guide")
    with pytest.raises(InputError, match=r"^f: not TOML \(.*\); see the guide$"):
        parse_toml("[a", "f", "see the guide")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.toml: cannot be read \(No such file or directory\); give a TOML file"):
        read_toml(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match=r"bytes\.toml: cannot be read as text"):
        read_toml(tmp_path / "bytes.toml")


def test_names_are_those_of_toml_files(tmp_path: Path) -> None:
    for name in ("b.toml", "a.toml", "notes.md"):
        (tmp_path / name).touch()
    assert toml_names(tmp_path) == ("a", "b")


def test_a_file_too_large_to_be_settings_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "f.toml"
    with path.open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(InputError, match=r"larger than 16,777,216 bytes; give a TOML file"):
        read_toml(path)
