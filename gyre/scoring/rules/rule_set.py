"""A rules file that has been read and found good."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Annotated, Any, Final, Self

from pydantic import Field, model_validator

from ...errors import InputError
from ...toml_file import validated
from ..evaluation import CheckStage
from ..limits import Limits
from ..result import MOST_CHECKS
from .combining import Combination, Combine, Term, combined
from .kinds import KINDS
from .reading import read_rules_file
from .rule import Rule, Share, Strict

_MOST_RULES: Final = MOST_CHECKS


class StageSettings(Strict):
    """What holds for all rules of a stage."""

    from_version: int = Field(default=0, ge=0, description="version that switches its rules on")
    ramp_versions: int = Field(default=0, ge=0, description="versions until their whole weight")
    cap: Share = Field(default=1.0, description="most that they add to the score")


class FileSettings(Strict):
    """What holds for a whole file."""

    combine: Combine = Combine.MEAN
    floor: Share = 0.0
    ceiling: Share = 1.0
    seconds: float = Field(default=600.0, gt=0, le=86_400, description="most that all rules together may take")
    at_once: int = Field(default=4, ge=1, le=256, description="rules that run side by side")
    limits: Limits = Field(default=Limits(), description="on what a rule runs; its time is its `seconds`")
    stages: dict[CheckStage, StageSettings] = Field(default={})
    rules: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=_MOST_RULES)]

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.floor > self.ceiling:
            raise ValueError("floor is above ceiling")
        if "wall_s" in self.limits.model_fields_set:
            raise ValueError("limits: takes no wall_s; give seconds, to a rule or to all")
        return self


@dataclass(frozen=True, slots=True)
class RuleSet:
    """The rules of a file, in its order."""

    path: Path
    settings: FileSettings
    rules: tuple[Rule, ...]
    digest: str  # of the file, "sha256:..."

    @property
    def folder(self) -> Path:
        """Where files that belong to the rules are looked for."""
        return self.path.resolve().parent

    def belongings(self) -> list[Path]:
        """Return what the rules name beside their file: schemas, databases, baselines, modules, what commands run."""
        return sorted({path for rule in self.rules for path in rule.belongings(self.folder)})

    def schedule(self, rule: Rule) -> tuple[int, int]:
        """Return from which version on a rule counts, and how many versions later with its whole weight."""
        stage = self.settings.stages.get(rule.stage, StageSettings())
        start = stage.from_version if rule.from_version is None else rule.from_version
        return start, stage.ramp_versions if rule.ramp_versions is None else rule.ramp_versions

    def strength(self, rule: Rule, version: int) -> float:
        """Return the share of its weight that a rule has at a version: 0 before it is switched on.

        With a ramp of r versions from version s on, it is (v - s + 1) / (r + 1), and 1 from s + r on.
        """
        start, ramp = self.schedule(rule)
        return 0.0 if version < start else min(1.0, (version - start + 1) / (ramp + 1))

    def applying(self, version: int) -> tuple[Rule, ...]:
        """Return the rules that are switched on at a version."""
        return tuple(rule for rule in self.rules if self.strength(rule, version) > 0)

    @property
    def last_version(self) -> int:
        """The version from which on nothing changes any more."""
        return max(sum(self.schedule(rule)) for rule in self.rules)

    def term(self, rule: Rule, passed: float, version: int) -> Term:
        """Return what a rule adds to the score at a version."""
        strength = self.strength(rule, version)
        limit = (1 - strength) + strength * (1.0 if rule.cap is None else rule.cap)
        return Term(
            rule.name, passed, strength * rule.weight, rule.stage, 0.0 if rule.gate else limit, pass_at=rule.pass_at
        )

    def combined(self, terms: Sequence[Term]) -> Combination:
        """Return the score that terms make together."""
        caps = {stage: settings.cap for stage, settings in self.settings.stages.items()}
        return combined(terms, self.settings.combine, caps, self.settings.floor, self.settings.ceiling)


def load_rules(path: Path) -> RuleSet:
    """Read a rules file.

    Raises:
        InputError: it cannot be read, or something in it cannot be used; one line that names file, rule and field.
    """
    values, content = read_rules_file(path)
    settings = validated(FileSettings, values, str(path))
    rules = tuple(_rule(one, index, path) for index, one in enumerate(settings.rules))
    found = RuleSet(path, settings, rules, f"sha256:{hashlib.sha256(content).hexdigest()}")
    _check_names(found)
    _check_order(found)
    _check_start(found)
    for rule in rules:
        rule.check_files(found.folder, f"{path}: {_called(rule.name)}")
    return found


def _called(name: object) -> str:
    return f"rule {name!r}"


def _rule(values: dict[str, Any], index: int, path: Path) -> Rule:
    name = values.get("name")
    where = f"{path}: {_called(name) if isinstance(name, str) else f'rule {index + 1}'}"
    kind = values.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        given = "missing" if kind is None else f"{kind!r} is none"
        raise InputError(f"{where}: kind: {given}; known kinds: {', '.join(KINDS)}")
    return validated(KINDS[kind], values, where)


def _check_names(found: RuleSet) -> None:
    seen: set[str] = set()
    for rule in found.rules:
        if rule.name in seen:
            raise InputError(f"{found.path}: {_called(rule.name)}: name: stands twice; give each rule its own")
        seen.add(rule.name)


def _check_order(found: RuleSet) -> None:
    by_name = {rule.name: rule for rule in found.rules}
    for rule in found.rules:
        for name in sorted(rule.comes_after):
            where = f"{found.path}: {_called(rule.name)}"
            if name not in by_name:
                raise InputError(f"{where}: comes after {name!r}, which is no rule of this file")
            if found.schedule(by_name[name])[0] > found.schedule(rule)[0]:
                raise InputError(f"{where}: comes after {name!r}, which is switched on later; give it the same version")
            rule.check_before(by_name[name], where)
    try:
        TopologicalSorter({rule.name: rule.comes_after for rule in found.rules}).prepare()
    except CycleError as error:
        raise InputError(f"{found.path}: rules wait for each other: {' after '.join(error.args[1])}") from error


def _check_start(found: RuleSet) -> None:
    """Refuse a file whose score says nothing at first."""
    if not any(rule.weight > 0 or rule.gate or rule.cap is not None for rule in found.applying(0)):
        raise InputError(
            f"{found.path}: rules: none has a weight, a gate or a cap at version 0; let one count from there"
        )
