"""Tables and JSON of `gyre rules`."""

from __future__ import annotations

from typing import Any

from rich.table import Table
from rich.text import Text

from ..scoring.rules import combining
from ..scoring.rules.rule import Rule
from ..scoring.rules.rule_set import RuleSet
from ..scoring.rules.stability import RuleOnFolder, Stability
from ..scoring.rules.stability_summary import summarized
from .common import counted


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", show_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold", justify="left")
    return table


def stability_tables(found: Stability) -> list[Table | Text]:
    """Return the rules with their pass shares and times, then every flip."""
    title = f"{counted(found.times, 'evaluation')} of each folder at version {found.version}"
    table = _table(title, "rule", "kind", "stage", "pass share", "mean s", "most s", "folders with flips", "changes")
    for name, on_folders in found.by_rule().items():
        one, rule = summarized(on_folders), on_folders[0].rule
        share = "broken" if one.pass_share is None else f"{one.pass_share:.3f}"
        flips = f"{one.flips} of {len(on_folders)}" if one.flips else ""
        figures = (share, f"{one.mean_s:.2f}", f"{one.most_s:.2f}", flips, ", ".join(one.changed))
        table.add_row(*map(Text, (name, rule.kind, rule.stage.value, *figures)))
    if not found.flips:
        said = "stable: every rule said the same each time"
        return [table, Text(said if not found.broken else "rules that are broken say nothing")]
    return [table, Text(), _flip_table(found.flips)]


def _flip_table(flips: tuple[RuleOnFolder, ...]) -> Table:
    table = _table("unstable on the same input", "rule", "folder", "outcome", "times", "how the rules ran", "detail")
    for one in flips:
        for seen in one.outcomes.values():
            modes = "; ".join(dict.fromkeys(each.mode.value for each in seen))
            table.add_row(
                *map(Text, (one.rule.name, str(one.folder), seen[0].outcome, str(len(seen)), modes, seen[0].detail))
            )
        table.add_section()
    return table


def explanation_json(found: RuleSet, version: int) -> dict[str, Any]:
    """Return what `gyre rules explain` shows, as JSON values."""
    return {
        "file": str(found.path),
        "digest": found.digest,
        "version": version,
        "settings": found.settings.model_dump(mode="json", exclude={"rules"}),
        "rules": [_rule_facts(found, rule, version) for rule in found.rules],
        "formula": _formula(),
    }


def _rule_facts(found: RuleSet, rule: Rule, version: int) -> dict[str, Any]:
    start, ramp = found.schedule(rule)
    weights = [found.strength(each, version) * each.weight for each in found.rules]
    own = found.strength(rule, version) * rule.weight
    return {
        "rule": rule.name,
        "kind": rule.kind,
        "stage": rule.stage.value,
        "weight": rule.weight,
        "share": own / sum(weights) if own else 0.0,
        "from_version": start,
        "whole_from_version": start + ramp,
        "gate": rule.gate,
        "cap": rule.cap,
        "pass_at": rule.pass_at,
        "after": sorted(rule.comes_after),
        "seconds": rule.seconds,
    }


def explanation_tables(found: RuleSet, version: int) -> list[Table | Text]:
    """Return the rules of a file with their weights and schedule, and the formula."""
    settings = found.settings
    title = f"{found.path}, at version {version}"
    table = _table(
        title, "rule", "kind", "stage", "weight", "share", "from version", "while it fails", "after", "time limit"
    )
    for rule in found.rules:
        facts = _rule_facts(found, rule, version)
        start, whole = facts["from_version"], facts["whole_from_version"]
        cells = (
            *(rule.name, rule.kind, rule.stage.value, f"{rule.weight:g}", f"{facts['share']:.1%}"),
            f"{start}" if start == whole else f"{start}, whole from {whole}",
            "score is 0" if rule.gate else "" if rule.cap is None else f"score is {rule.cap:g} at most",
            ", ".join(facts["after"]),
            f"{rule.seconds:g} s",
        )
        table.add_row(*map(Text, cells))
    caps = [f"; {stage.value} adds {one.cap:g} at most" for stage, one in settings.stages.items() if one.cap < 1]
    said = f"combine = {settings.combine.value}; score from {settings.floor:g} to {settings.ceiling:g}{''.join(caps)}"
    return [table, Text(f"\n{said}\n\n{_formula()}")]


def _formula() -> str:
    assert combining.__doc__ is not None
    return combining.__doc__.partition("\n\n")[2].strip()
