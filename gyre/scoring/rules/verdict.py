"""What a rule says of one execution, and the two ways in which it can fail to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ..result import one_line

MOST_DETAIL: Final = 300  # characters


@dataclass(frozen=True, slots=True)
class Verdict:
    """How far a check passed."""

    passed: float  # share, 0 to 1
    detail: str = ""  # for people, one line
    output: str | None = None  # what a command printed, for rules that look at it


class FailedCheckError(Exception):
    """The artefacts are such that the check cannot even be made: it counts as failed. The message says why."""


class BrokenRuleError(Exception):
    """The rule itself does not work, whatever the execution did: the evaluation is not valid. The message says why."""


def passes(*, met: bool, detail: str = "") -> Verdict:
    """Return the verdict of a check that is met or not; only one that is not needs `detail`."""
    return Verdict(1.0) if met else Verdict(0.0, detail)


def told(text: object) -> str:
    """Return a text for people: one line, bounded, without what has no form in UTF-8 (names of files may)."""
    return one_line(str(text).encode("utf-8", "backslashreplace").decode(), MOST_DETAIL)
