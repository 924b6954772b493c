"""Rules files that cannot be used are refused in one line that says where and why."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from rules_files import rules_file

from gyre.errors import InputError
from gyre.scoring.identity import identity_of
from gyre.scoring.rules import load_rules
from gyre.scoring.settings import RulesSettings

COMMAND = {"kind": "command", "command": "true"}
FILE = {"kind": "file", "path": "a"}


def refusal(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        load_rules(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    return message.removeprefix(str(path))


@pytest.mark.parametrize(
    ("rules", "settings", "said"),
    [
        ([], {}, ": rules: "),
        ([FILE], {"combin": "mean"}, ": combin: unknown key; known keys: combine, floor"),
        ([FILE], {"floor": 0.5, "ceiling": 0.4}, "floor is above ceiling"),
        ([FILE], {"limits": {"wall_s": 5}}, "takes no wall_s; give seconds"),
        ([FILE], {"stages": {"proces": {}}}, ": stages.proces"),
        ([FILE | {"wieght": 2}], {}, ": rule 'rule 0': wieght: unknown key; known keys: name, kind"),
        ([FILE | {"weight": -1}], {}, ": rule 'rule 0': weight: "),
        ([FILE | {"weight": float("nan")}], {}, ": rule 'rule 0': weight: "),
        ([FILE | {"name": "../x"}], {}, ": rule '../x': name: "),
        ([FILE | {"kind": "llm"}], {}, ": rule 'rule 0': kind: 'llm' is none; known kinds: command, regex"),
        ([{"path": "a"}], {}, ": rule 'rule 0': kind: missing"),
        ([FILE, FILE | {"name": "rule 0"}], {}, ": rule 'rule 0': name: stands twice"),
        ([FILE | {"after": ["nobody"]}], {}, "comes after 'nobody', which is no rule of this file"),
        ([FILE | {"after": ["rule 1"]}, FILE | {"after": ["rule 0"]}], {}, "rules wait for each other"),
        ([FILE | {"after": ["rule 0"]}], {}, "rules wait for each other"),
        ([FILE | {"after": ["rule 1"]}, FILE | {"from_version": 9}], {}, "which is switched on later"),
        ([FILE | {"from_version": 1}], {}, "none has a weight, a gate or a cap at version 0"),
        ([FILE | {"weight": 0}], {}, "none has a weight, a gate or a cap at version 0"),
        ([COMMAND | {"command": ""}], {}, ": rule 'rule 0': command: "),
        ([COMMAND | {"command": "sh -c 'x"}], {}, ": rule 'rule 0': command: No closing quotation"),
        ([{"kind": "regex", "file": "a", "pattern": "("}], {}, ": pattern: no regular expression: "),
        ([{"kind": "regex", "pattern": "a"}], {}, "give exactly one of file, answer and output_of"),
        ([FILE, {"kind": "regex", "output_of": "rule 0", "pattern": "a"}], {}, "output_of: 'rule 0' is of kind file"),
        ([{"kind": "json_schema", "answer": True, "schema_file": "no.json"}], {}, "schema_file: "),
        (
            [{"kind": "json_schema", "answer": True, "inline_schema": {"type": "nothing"}}],
            {},
            "inline_schema: no JSON Schema: ",
        ),
        (
            [{"kind": "json_schema", "answer": True, "inline_schema": {"$ref": "http://localhost:1/s.json"}}],
            {},
            "refers to http://localhost:1/s.json, and nothing is fetched",
        ),
        (
            [{"kind": "json_schema", "answer": True, "inline_schema": {"$ref": "#/$defs/no"}}],
            {},
            "which is not in it",
        ),
        ([{"kind": "sql", "database": "d", "query": "SELEC 1"}], {}, 'no SQL query: near "SELEC": syntax error'),
        ([{"kind": "sql", "database": "d", "query": "SELECT 1; SELECT 2"}], {}, "no SQL query: "),
        ([{"kind": "sql", "database_file": "no.db", "query": "SELECT 1"}], {}, "database_file: "),
        ([{"kind": "file", "path": "a", "glob": "b"}], {}, "give either path or glob"),
        ([{"kind": "file", "path": "a", "state": "changed"}], {}, "need either sha256 or baseline"),
        ([{"kind": "file", "path": "a", "state": "changed", "baseline": "no"}], {}, "baseline: "),
        ([{"kind": "file", "glob": "../*"}], {}, "leads out of the artefacts"),
        ([{"kind": "limit", "of": "steps"}], {}, "give at_most, at_least or both"),
        ([{"kind": "limit", "of": "steps", "at_most": 5, "zero_above": 4}], {}, "needs zero_below <= at_least"),
        ([{"kind": "python", "function": "no_colon"}], {}, ": function: "),
    ],
)
def test_refused(tmp_path: Path, rules: list[dict[str, Any]], settings: dict[str, Any], said: str) -> None:
    assert said in refusal(rules_file(tmp_path, *rules, **settings))


YAML = """
combine: all
rules:
  - name: one
    kind: file
    path: a
"""


def test_yaml_is_read_as_toml_is(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(YAML)
    found = load_rules(path)
    assert found.settings.combine == "all"
    assert [rule.name for rule in found.rules] == ["one"]


def bomb() -> str:
    """Ten lines that stand for ten billion."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (bomb(), "aliases are not taken; write the value out, line 2"),
        ("a: &a [*a]", "aliases are not taken"),
        (YAML + "    path: b\n", "key 'path' twice, line 7"),
        (YAML + "combine: mean\n", "key 'combine' twice"),
        ("[" * 100_000, "nested too deeply"),
        ("rules: !!python/object/apply:os.system ['true']", "could not determine a constructor"),
        ("rules: !!python/name:os.system", "could not determine a constructor"),
        ("? [1, 2]\n: 3\n", "a key must be text"),
        ("- 1\n", "holds no table"),
        ("", "holds no table"),
        ("rules: [\n", "not YAML that can be read"),
        ("a: 2024-99-99\n", "not YAML that can be read"),
        ("1: 2\n", "1"),
        ("on: 2\nrules: []\n", ""),
        ("rules: 5\n", ": rules: "),
        ("rules: [5]\n", ": rules.0: "),
        ("a: \x00\n", "not YAML that can be read"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_yaml_that_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "rules.yml"
    path.write_text(text)
    assert said in refusal(path)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("r.json", b"{}", "name it .toml, .yaml or .yml"),
        ("r.toml", b"rules = [", "not TOML"),
        ("r.toml", b"a = 1\na = 2", "not TOML"),
        ("r.toml", b"\xff", "not text in UTF-8"),
        ("r.toml", b"#" * (1 << 20) + b"#", "larger than 1,048,576 bytes"),
        ("r.toml", b"a = " + b"[" * 100_000, "not TOML"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_files_that_are_refused(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert said in refusal(path)
    assert "cannot be read" in refusal(tmp_path / "missing.toml")


def test_what_is_not_installed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("yaml", "jsonschema"):
        monkeypatch.setitem(sys.modules, module, None)
    path = tmp_path / "rules.yaml"
    path.write_text(YAML)
    assert "pip install 'gyre[scoring]', or write TOML" in refusal(path)
    schema = {"kind": "json_schema", "answer": True, "inline_schema": {}}
    assert "pip install 'gyre[scoring]'" in refusal(rules_file(tmp_path, schema))
    load_rules(rules_file(tmp_path, FILE))


@pytest.mark.parametrize("changed", ["schema.json", "shop.db", "before/main.py", "judge.py", "run.sh"])
def test_what_judges_has_another_name_once_something_beside_the_rules_changes(changed: str, tmp_path: Path) -> None:
    (tmp_path / "before").mkdir()
    files = {"schema.json": "{}", "shop.db": "", "before/main.py": "", "judge.py": "", "run.sh": "", "other": ""}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    path = rules_file(
        tmp_path,
        {"kind": "json_schema", "file": "a", "schema_file": "schema.json"},
        {"kind": "sql", "database_file": "shop.db", "query": "SELECT 1"},
        {"kind": "file", "path": "main.py", "state": "unchanged", "baseline": "before"},
        {"kind": "python", "function": "judge:main"},
        {"kind": "command", "command": "sh {rules}/run.sh"},
    )
    settings = RulesSettings(kind="rules", file=path)
    before = identity_of(settings)
    (tmp_path / "other").write_text("of no matter")
    assert identity_of(settings) == before
    (tmp_path / changed).write_text("true")
    assert identity_of(settings) != before
