"""An alert: one condition, from when it began until it ended."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

from .settings import AlertName


class Severity(StrEnum):
    """How much an alert matters."""

    WARNING = "warning"  # look at it
    ALARM = "alarm"  # the training itself is likely at fault: look before more is spent


SEVERITIES: Final = MappingProxyType(
    {
        AlertName.COMPLETION_LOW: Severity.WARNING,
        AlertName.RULE_FALLS: Severity.WARNING,
        AlertName.REWARD_HACKING: Severity.ALARM,
        AlertName.FORGETTING: Severity.ALARM,
        AlertName.KL_HIGH: Severity.ALARM,
        AlertName.ZERO_VARIANCE_HIGH: Severity.WARNING,
        AlertName.INVALID_HIGH: Severity.WARNING,
        AlertName.TOOL_CALLS_COLLAPSE: Severity.ALARM,
        AlertName.STALENESS_HIGH: Severity.WARNING,
        AlertName.LONG_TASKS_STARVED: Severity.WARNING,
    }
)


@dataclass(frozen=True, slots=True)
class Alert:
    """A condition that held. `step` and `time_s` (seconds since the run began) are those of the update that showed it.

    `subject` is which check or figure it is about, empty where there is only one. `reference` is what the value is held
    against where that is not the threshold: the best, or the level before a fall.
    """

    step: int
    time_s: float
    name: AlertName
    subject: str
    severity: Severity
    value: float
    threshold: float
    sentence: str
    reference: float | None = None
    ended_step: int | None = None  # None: it goes on
    ended_s: float | None = None

    @property
    def active(self) -> bool:
        """It has not ended."""
        return self.ended_step is None

    @property
    def title(self) -> str:
        """Name and subject, in words."""
        words = self.name.value.replace("_", " ")
        return f"{words}: {self.subject}" if self.subject else words

    @property
    def span(self) -> str:
        """From which step to which it held, in words."""
        return f"since step {self.step}" if self.ended_step is None else f"steps {self.step} to {self.ended_step}"

    def to_json(self) -> dict[str, Any]:
        """JSON-ready values."""
        return asdict(self)


def alerts_jsonl(alerts: Iterable[Alert]) -> str:
    """Return alerts as JSON lines, one each."""
    return "".join(json.dumps(alert.to_json(), separators=(",", ":"), allow_nan=False) + "\n" for alert in alerts)
