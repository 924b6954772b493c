"""What is watched, and where an alert begins."""

from __future__ import annotations

from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ..errors import InputError
from ..toml_file import read_toml, validated


class AlertName(StrEnum):
    """Conditions that raise an alert."""

    COMPLETION_LOW = "completion_low"
    RULE_FALLS = "rule_falls"
    REWARD_HACKING = "reward_hacking"
    FORGETTING = "forgetting"
    KL_HIGH = "kl_high"
    ZERO_VARIANCE_HIGH = "zero_variance_high"
    INVALID_HIGH = "invalid_high"
    TOOL_CALLS_COLLAPSE = "tool_calls_collapse"
    STALENESS_HIGH = "staleness_high"
    LONG_TASKS_STARVED = "long_tasks_starved"


class WatchSettings(BaseModel):
    """Thresholds of alerts (table `[watch]`). Means are over `window` steps, errors are standard errors over groups."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    off: tuple[AlertName, ...] = Field(default=(), description="alerts that are not raised")
    window: int = Field(default=5, ge=1, le=1000, description="steps that a figure is the mean of")
    skip_steps: int = Field(
        default=5, ge=0, description="first steps that no trend looks at: short executions come first"
    )
    hold: int = Field(default=2, ge=1, description="steps in a row that begin an alert, and that end it")
    min_executions: int = Field(default=50, ge=1, description="fewest executions or evaluations in a window")
    min_groups: int = Field(default=20, ge=2, description="fewest groups in a window")
    errors: float = Field(default=5.0, gt=0, description="standard errors by which a fall must exceed noise")

    completion_low: float = Field(default=0.5, ge=0, le=1, description="completion rate below this")
    rule_fall: float = Field(default=0.15, gt=0, le=1, description="a rule's pass rate falls by this ...")
    rule_fall_steps: int = Field(default=10, ge=1, description="... within so many steps")
    hacking_window: int = Field(default=20, ge=8, le=1000, description="steps over which score and checks are followed")
    hacking_rise: float = Field(default=0.05, ge=0, description="least rise of the mean score over them")
    hacking_fall: float = Field(default=0.05, ge=0, le=1, description="least fall of a check's pass rate over them")
    hacking_level: float = Field(default=0.01, gt=0, lt=0.5, description="level of each of the two one-sided tests")
    forgetting_drop: float = Field(default=0.1, gt=0, description="completion or score this far below its best")
    kl_metric: str = Field(default="kl", min_length=1, description="which of an update's metrics is its KL")
    kl_high: float = Field(default=0.1, gt=0, description="KL of an update above this")
    zero_variance_high: float = Field(default=0.8, gt=0, le=1, description="share of groups with one score above this")
    invalid_high: float = Field(default=0.1, gt=0, le=1, description="share of evaluations that failed above this")
    tool_calls_low: float = Field(
        default=0.5, gt=0, lt=1, description="mean tool calls below this share of their highest"
    )
    staleness_high: float = Field(
        default=8.0, gt=0, description="mean versions between dispatch and training above this"
    )
    starved_low: float = Field(
        default=0.5, gt=0, lt=1, description="share trained of the longest executions, over that of all, below this"
    )
    process_checks: tuple[str, ...] = Field(
        default=("process:*", "process.*", "process/*"),
        description="names of checks that look at how a result came about (shell patterns)",
    )

    def is_process(self, check: str) -> bool:
        """Whether a check, by its name, looks at how a result came about."""
        return any(fnmatchcase(check, pattern) for pattern in self.process_checks)

    @model_validator(mode="after")
    def _windows_apart(self) -> Self:
        if self.rule_fall_steps < self.window:
            raise ValueError(
                f"rule_fall_steps: {self.rule_fall_steps} is less than window, {self.window}: the two would overlap"
            )
        return self


def watch_settings(values: Any, where: str) -> WatchSettings:
    """Return settings of a table `[watch]`; None gives the defaults.

    Raises:
        InputError: an unknown key or an impossible value; `where` begins the message.
    """
    return WatchSettings() if values is None else validated(WatchSettings, values, where)


def read_watch_settings(path: Path) -> WatchSettings:
    """Return the table `[watch]` of a TOML file.

    Raises:
        InputError: the file cannot be read, has no such table, or a value in it is impossible.
    """
    table = read_toml(path).get("watch")
    if table is None:
        raise InputError(f"{path}: no table [watch]; docs/watch.md lists its keys")
    return watch_settings(table, f"{path}: watch")
