"""What is told of rules that ran many times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .changes import MOST_NAMED
from .stability import RuleOnFolder, Stability


def stability_json(found: Stability) -> dict[str, Any]:
    """Return the result as JSON values."""
    return {
        "version": found.version,
        "times": found.times,
        "stable": not found.flips,
        "rules": [_rule_json(name, on_folders) for name, on_folders in found.by_rule().items()],
        "flips": [_flip_json(one) for one in found.flips],
    }


def _rule_json(name: str, on_folders: Sequence[RuleOnFolder]) -> dict[str, Any]:
    summary = summarized(on_folders)
    return {
        "rule": name,
        "kind": on_folders[0].rule.kind,
        "stage": on_folders[0].rule.stage.value,
        "pass_share": summary.pass_share,
        "mean_s": summary.mean_s,
        "most_s": summary.most_s,
        "broken": summary.broken,
        "flips": summary.flips,
        "changes": list(summary.changed),
    }


def _flip_json(one: RuleOnFolder) -> dict[str, Any]:
    return {
        "rule": one.rule.name,
        "folder": str(one.folder),
        "outcomes": [
            {
                "outcome": seen[0].outcome,
                "passed": passed,
                "times": len(seen),
                "detail": seen[0].detail,
                "modes": [each.mode.value for each in seen],
            }
            for passed, seen in one.outcomes.items()
        ],
    }


@dataclass(frozen=True, slots=True)
class Summary:
    """A rule over all folders and runs."""

    pass_share: float | None  # mean of the shares; None: it never worked
    mean_s: float
    most_s: float
    broken: int  # runs in which it did not work
    flips: int  # folders on which its outcome differs
    changed: tuple[str, ...]  # files of the artefacts that it changed, the first few


def summarized(on_folders: Sequence[RuleOnFolder]) -> Summary:
    """Sum up a rule's runs."""
    seen = [one for on_folder in on_folders for one in on_folder.seen]
    passed = [one.passed for one in seen if one.passed is not None]
    changed = dict.fromkeys(path for one in seen for path in one.changed)
    return Summary(
        pass_share=sum(passed) / len(passed) if passed else None,
        mean_s=sum(one.seconds for one in seen) / len(seen),
        most_s=max(one.seconds for one in seen),
        broken=len(seen) - len(passed),
        flips=sum(one.flips for one in on_folders),
        changed=tuple(changed)[:MOST_NAMED],
    )
