"""Generate a trace from a profile."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from ...arrays import Int64Array, row_starts, row_sums
from ...errors import InputError
from ...outcome import Outcome
from ...role import Role
from ..schema import CALLS, EXECUTIONS, Quality, Relation, ScoreStatus, WaitKind
from ..trace import Trace
from .draws import Draws, draw
from .generated_calls import GeneratedCalls, calls_of
from .profile import Profile
from .quantiles import lognormal_quantile
from .turns import turns_of

HARNESS: Final = "synthetic"
BoolArray = npt.NDArray[np.bool_]


def generate(profile: Profile, *, groups: int, seed: int) -> Trace:
    """A synthetic trace of `groups` groups of `profile.training.group_size` executions each.

    Group g of seed s is the same, byte for byte, whatever `groups` is. Every execution carries the profile's scale.
    Lengths are not cut at the profile's time-outs. An execution whose set-up fails has no calls. Waits for tools are
    in the calls; the tools table is empty.

    Raises:
        InputError: `groups` below 1 or `seed` below 0.
    """
    if groups < 1:
        raise InputError(f"groups = {groups}: must be at least 1")
    if seed < 0:
        raise InputError(f"seed = {seed}: must not be negative")
    draws = draw(profile, groups=groups, seed=seed)
    setup_failed = draws.scalar["setup_failed"] < profile.failures.setup
    calls = calls_of(draws, turns_of(draws, profile), profile).keep(~setup_failed)
    group_ids = pl.Series("group_id", [f"{profile.name}-g{group:05d}" for group in range(groups)])
    executions = _executions(profile, draws, calls, setup_failed, group_ids)
    return Trace.from_frames(
        executions=executions,
        groups=_groups(group_ids, profile.training.group_size),
        calls=_calls(calls, executions["execution_id"]),
        source=f"profile {profile.name}",
    )


def _executions(
    profile: Profile, draws: Draws, calls: GeneratedCalls, setup_failed: BoolArray, group_ids: pl.Series
) -> pl.DataFrame:
    size, count = profile.training.group_size, len(setup_failed)
    member = pl.Series([f"-m{number:03d}" for number in range(size)])
    scoring_failed = (draws.scalar["scoring_failed"] < profile.failures.scoring) & ~setup_failed
    scored = ~(setup_failed | scoring_failed)
    n_calls = np.bincount(calls.execution, minlength=count)
    starts = row_starts(n_calls)
    group = group_ids.gather(np.arange(count) // size)
    return pl.DataFrame(
        {
            "execution_id": group + member.gather(np.arange(count) % size),
            "group_id": group,
            "outcome": _named(
                Outcome,
                np.where(setup_failed, "env_setup_failed", np.where(scoring_failed, "score_failed", "completed")),
            ),
            "reward": pl.Series(draws.reward).set(pl.Series(~scored), None),
            "score_status": _named(
                ScoreStatus, np.where(setup_failed, "unscored", np.where(scoring_failed, "failed", "scored"))
            ),
            "setup_s": lognormal_quantile(profile.setup_s, draws.scalar["setup"]),
            "scoring_s": np.where(setup_failed, 0.0, lognormal_quantile(profile.scoring_s, draws.scalar["scoring"])),
            "n_calls": n_calls,
            "sum_input_tokens": row_sums(calls.input_tokens, starts),
            "sum_output_tokens": row_sums(calls.output_tokens, starts),
        }
    ).with_columns(
        source=pl.lit(f"profile {profile.name}"),
        harness=pl.lit(HARNESS),
        model=pl.lit(None, pl.String),
        wall_s=pl.lit(None, pl.Float64),
        human_in_loop=pl.lit(False),
        censored=pl.lit(False),
        synthetic=pl.lit(True),
        synthetic_scale=pl.lit(profile.scale),
        **{
            name: pl.lit(Quality.SYNTHETIC.value, EXECUTIONS[name])
            for name in ("token_quality", "time_quality", "prefix_quality")
        },
    )


def _groups(group_ids: pl.Series, size: int) -> pl.DataFrame:
    return pl.DataFrame({"group_id": group_ids}).with_columns(
        task=pl.lit(None, pl.String), n_executions=pl.lit(size, pl.Int64), synthetic=pl.lit(True)
    )


def _calls(calls: GeneratedCalls, execution_ids: pl.Series) -> pl.DataFrame:
    main = calls.thread == 0
    return pl.DataFrame(
        {
            "execution_id": execution_ids.gather(calls.execution),
            "call_index": calls.index.astype(np.int32),
            "thread": calls.thread.astype(np.int32),
            "parent_thread": pl.Series(np.zeros(len(main), np.int32)).set(pl.Series(main), None),
            "role": _enum("role", Role, calls.role),
            "parent_call": _optional(calls.parent_call),
            "relation": _enum("relation", Relation, calls.relation),
            "prefix_tokens": calls.prefix_tokens,
            "dropped_tokens": calls.dropped_tokens,
            "input_tokens": calls.input_tokens,
            "output_tokens": calls.output_tokens,
            "after_call": _optional(calls.after_call),
            "wait_s": calls.wait_s,
            "wait_kind": _enum("wait_kind", WaitKind, calls.wait_kind),
        }
    )


def _optional(value: Int64Array) -> pl.Series:
    """Values as Int32, negative ones as null."""
    series = pl.Series(value.astype(np.int32))
    return series.set(series < 0, None)


def _enum(column: str, kind: type[Role] | type[Relation] | type[WaitKind], code: npt.NDArray[np.int8]) -> pl.Series:
    return pl.Series([member.value for member in kind], dtype=CALLS[column]).gather(code.astype(np.uint32))


def _named(kind: type[Outcome] | type[ScoreStatus], value: npt.NDArray[np.str_]) -> pl.Series:
    return pl.Series(value.tolist(), dtype=pl.Enum([member.value for member in kind]))
