"""Rules files written, read and run on folders by tests."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

from gyre.scoring.evaluation import Evaluation, Subject
from gyre.scoring.rules import RuleEvaluator, RuleSet, load_rules

Table = Mapping[str, Any]


def rules_file(place: Path, *rules: Table, **settings: Any) -> Path:
    """Write a rules file beside the artefacts, in `place`."""
    path = place / "rules.toml"
    named = [{"name": f"rule {number}", **rule} for number, rule in enumerate(rules)]
    path.write_text(tomli_w.dumps({**settings, "rules": named}))
    return path


def rule_set(place: Path, *rules: Table, **settings: Any) -> RuleSet:
    return load_rules(rules_file(place, *rules, **settings))


def artefacts(place: Path, **files: str | bytes) -> Path:
    """Make the folder that an execution left; `__` in a name stands for a dot, as in `out__json`."""
    folder = place / "artefacts"
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        path = folder / name.replace("__", ".")
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def evaluated(rules: RuleSet, folder: Path | None, **subject: Any) -> Evaluation:
    return asyncio.run(RuleEvaluator(rules).evaluate(Subject("e", folder=folder, **subject)))


def judged(place: Path, rule: Table, folder: Path | None = None, **subject: Any) -> tuple[float, str]:
    """Run one rule, which works, on the artefacts in `place`; return its share and its detail."""
    left = place / "artefacts"
    evaluation = evaluated(rule_set(place, rule), folder or (left if left.exists() else None), **subject)
    assert evaluation.valid, evaluation.reason
    (check,) = evaluation.checks
    assert evaluation.score == check.passed
    assert len(check.detail) <= 300
    assert "\n" not in check.detail
    assert bool(check.detail) == (check.passed < 1)
    return check.passed, check.detail


def broken(place: Path, rule: Table, **subject: Any) -> str:
    """Run one rule that does not work on the artefacts in `place`; return why it does not."""
    evaluation = evaluated(rule_set(place, rule), place / "artefacts", **subject)
    assert not evaluation.valid
    assert evaluation.score is None
    return evaluation.reason
