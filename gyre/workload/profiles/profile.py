"""A workload profile: the parameters of a generator of agent executions, read from TOML.

Lengths and waits are lognormal with effects of the group (task) and of the member (execution); what has a heavy tail is
two-part, a lognormal body and a Pareto tail that ends at a cap. Time-outs are limits that whoever replays a workload
enforces: lengths are drawn without them. `[provenance]` says of every table of parameters where its figures come from.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Final, Self

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, model_validator

from ...errors import InputError
from ...toml_file import parse_toml, read_toml, toml_names, validated
from .bounds import out_of_bounds

_BUNDLED: Final = files("gyre.traces")
NAME_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
NonNegative = Field(default=0.0, ge=0.0)
Share = Field(default=0.0, ge=0.0, le=1.0)


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Lognormal(_Table):
    """Lognormal; `sigma` is the standard deviation of the natural logarithm. Values above `cap` become `cap`."""

    median: PositiveFloat
    sigma: float = NonNegative
    cap: PositiveFloat | None = None


class Correlated(Lognormal):
    """Lognormal whose logarithm sums effects of the group, of the member and, by `sigma`, of the value itself."""

    sigma_group: float = NonNegative
    sigma_member: float = NonNegative


class Calls(Correlated):
    """Calls of an execution. With probability `outlier_share` a member's effect has `sigma_outlier` instead of
    `sigma_member`: members of a group are mostly alike and rarely far apart."""

    outlier_share: float = Share
    sigma_outlier: float = NonNegative


class TwoPart(Correlated):
    """A correlated lognormal body below `tail_from`; with probability `tail_share` a Pareto tail from there to `cap`.

    The effects of group and member shift the body's median and multiply the tail's share (whose mean stays
    `tail_share`), so that tasks with slow tools also have more of the longest waits.
    """

    tail_share: float = Share
    tail_from: PositiveFloat | None = None
    tail_alpha: PositiveFloat = 1.0

    @model_validator(mode="after")
    def _tail_is_bounded(self) -> Self:
        if self.tail_share > 0.0 and (self.tail_from is None or self.cap is None or self.tail_from >= self.cap):
            raise ValueError("a tail needs tail_from below cap")
        return self


class Compaction(_Table):
    """What a harness does when the context would pass a threshold: a summary call, then a shorter context."""

    threshold_tokens: PositiveInt
    summary_tokens: Lognormal
    context_after_tokens: Lognormal


class SubAgents(_Table):
    """Threads that a main call spawns and that the next main call waits for."""

    group_share: float = Share  # share of groups whose executions use sub-agents at all
    per_call: float = Share  # in those: probability that a main call spawns some
    width: float = Field(default=1.0, ge=1.0)  # mean number spawned at once; geometric
    calls: Lognormal = Lognormal(median=5.0)  # calls of one sub-agent
    input_tokens: Lognormal = Lognormal(median=27_000.0)  # input of its first call


class Failures(_Table):
    """Probability, for an execution, that its set-up or its scoring fails; and for a call, that it is retried."""

    setup: float = Share
    scoring: float = Share
    retry: float = Share


class Timeouts(_Table):
    """Limits in seconds from dispatch; None: no limit. The harness's own ends in a score, the overall one does not."""

    harness_s: PositiveFloat | None = None
    overall_s: PositiveFloat | None = None


class Reward(_Table):
    """Rewards, correlated within a group.

    A share `flat_groups` of groups has the same reward in every member: 1 with probability `flat_one`, else 0. In the
    others a member's reward is Binomial(levels, p) / levels with the group's p from a Beta of mean `mean` and
    `concentration` a + b, and at least one member differs.
    """

    flat_groups: float = Share
    flat_one: float = Field(default=0.5, ge=0.0, le=1.0)
    mean: float = Field(default=0.5, gt=0.0, lt=1.0)
    concentration: PositiveFloat = 2.0
    levels: PositiveInt = 1


class Nominal(_Table):
    """Speed of one sequence at which `nominal_durations` reckons the time in the model."""

    decode_tokens_per_s: PositiveFloat
    prefill_tokens_per_s: PositiveFloat


class Training(_Table):
    """Size of a run: members of a group (N), groups of a step (B), steps."""

    group_size: PositiveInt
    groups_per_step: PositiveInt
    steps: PositiveInt


class Profile(_Table):
    """Parameters of a generated workload. Tokens, seconds, probabilities; see each table."""

    name: str = Field(pattern=NAME_PATTERN)
    description: str
    scale: str  # becomes `synthetic_scale` of what is generated
    hardware: str  # name of a hardware profile
    cells: PositiveInt
    training: Training
    nominal: Nominal
    calls: Calls  # calls of the main thread, summaries and retries not counted
    input_tokens: Correlated  # input of the first call; `sigma` is of no use here
    growth_tokens: TwoPart  # new input of a later call: what tools and the harness added
    output_tokens: TwoPart
    tool_wait_s: TwoPart  # from the end of a call to the start of the next
    first_wait_s: TwoPart | None = None  # from the end of set-up to the start of the first call; None: no wait
    setup_s: Lognormal
    scoring_s: Lognormal
    reward: Reward
    compaction: Compaction | None = None
    sub_agents: SubAgents = SubAgents()
    failures: Failures = Failures()
    timeouts: Timeouts = Timeouts()
    provenance: dict[str, str]

    @model_validator(mode="after")
    def _compaction_shrinks(self) -> Self:
        if self.compaction and self.compaction.context_after_tokens.median >= self.compaction.threshold_tokens:
            raise ValueError("compaction.context_after_tokens.median must be below compaction.threshold_tokens")
        return self

    @model_validator(mode="after")
    def _is_bounded(self) -> Self:
        fault = out_of_bounds(self.model_dump(exclude_none=True))
        if fault:
            raise ValueError(fault)
        return self


def profile_names() -> tuple[str, ...]:
    """Names of the bundled profiles, sorted."""
    return toml_names(_BUNDLED)


def load_profile(name_or_path: str | Path) -> Profile:
    """The bundled profile of that name or, if the argument ends in .toml, the one in that file.

    Raises:
        InputError: no such profile or file, not TOML, an unknown key or a value out of range.
    """
    if str(name_or_path).endswith(".toml"):
        return validated(Profile, read_toml(Path(name_or_path)), str(name_or_path))
    if name_or_path not in profile_names():
        raise InputError(
            f"profile {str(name_or_path)!r}: no such bundled profile; "
            f"choose {', '.join(profile_names())}, or a path to a .toml file"
        )
    return parse_profile(_BUNDLED.joinpath(f"{name_or_path}.toml").read_text("utf-8"), where=f"profile {name_or_path}")


def parse_profile(text: str, *, where: str) -> Profile:
    """The profile in a TOML text; `where` names the text in error messages.

    Raises:
        InputError: not TOML, an unknown key or a value out of range.
    """
    return validated(Profile, parse_toml(text, where), where)
