"""Fit a profile to a trace."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

import numpy as np
import polars as pl
from scipy import optimize

from ...errors import InputError
from ...outcome import Outcome
from ...toml_file import validated
from ..description import Samples, samples
from ..profiles.profile import (
    NAME_PATTERN,
    Calls,
    Compaction,
    Correlated,
    Failures,
    Lognormal,
    Nominal,
    Profile,
    SubAgents,
    Timeouts,
    Training,
    TwoPart,
)
from ..schema import Relation
from ..trace import Trace
from .laws import FEWEST_IN_TAIL, fit_correlated, fit_lognormal, fit_two_part
from .outliers import fit_mixture
from .rewards import fit_reward
from .surroundings import RESOLUTION_S, TAIL_QUANTILE, fit_first_wait, fit_scoring, fit_setup, positive

FEWEST_EXECUTIONS: Final = 2
FEWEST_EXACT: Final = 50  # executions with exact counts of tokens, from which on the others are left out
FEW_CUT: Final = 0.02  # above this share of executions cut short, their bounds would pass for members that are alike
LONG_WAIT_S: Final = 60.0  # published shares of tool time are given for waits above a minute
SIGNIFICANT_DIGITS: Final = 4
NO_LAW: Final = TwoPart(median=1.0)
MEASURED_SUMMARY_TOKENS: Final = Lognormal(median=11_700.0, sigma=0.25, cap=30_000.0)
ASSUMED_NOMINAL: Final = Nominal(decode_tokens_per_s=60.0, prefill_tokens_per_s=30_000.0)
DEFAULT_HARDWARE: Final = "qwen3.5-122b-tp8"
DEFAULT_CELLS: Final = 8  # every policy can run: those that split training from serving need two


def fit_profile(trace: Trace, name: str, *, cells: int = DEFAULT_CELLS, hardware: str = DEFAULT_HARDWARE) -> Profile:
    """A profile whose generated executions resemble those of a valid trace.

    Executions cut short (time-outs, `censored`) enter the lengths as lower bounds; no law reaches beyond the longest
    value recorded. What the trace does not hold is set to published or assumed figures; `provenance` says which.
    Whether the fit is good is for `goodness_of_fit` to say. Figures are rounded to four digits.

    `cells` and `hardware` become the setting that the profile is run in: a trace does not say.

    Raises:
        InputError: the name is not a profile's, the trace has fewer than two executions with calls, or a value in it is
            beyond what a profile may hold.
    """
    if not re.match(NAME_PATTERN, name):
        raise InputError(f"profile name {name!r}: use letters, digits, '.', '_' and '-' only")
    taken = samples(trace)
    executions = taken.executions
    if len(executions) < FEWEST_EXECUTIONS:
        raise InputError(
            f"fit: only {len(executions)} executions with calls, {FEWEST_EXECUTIONS} are needed; import a larger trace"
        )
    notes = _notes(trace, executions)
    profile = {
        "name": name,
        "description": f"Fitted to {len(executions)} executions of {_sources(trace)}",
        "scale": f"profile {name}: fitted to {_sources(trace)}, not rescaled",
        "hardware": hardware,
        "cells": cells,
        "training": _training(trace),
        "nominal": _nominal(taken, notes),
        "calls": _calls(executions),
        "input_tokens": _first_inputs(executions),
        "growth_tokens": _two_part(taken, "growth_tokens", floor=1.0),
        "output_tokens": _two_part(_exact(taken), "output_tokens", floor=1.0),
        "tool_wait_s": _two_part(taken, "tool_wait_s", floor=RESOLUTION_S, long=LONG_WAIT_S),
        "first_wait_s": fit_first_wait(executions, notes),
        "setup_s": fit_setup(executions, notes),
        "scoring_s": fit_scoring(executions, notes),
        "reward": fit_reward(executions, notes),
        "compaction": _compaction(taken, notes),
        "sub_agents": _sub_agents(taken),
        "failures": _failures(trace),
        "timeouts": _timeouts(trace),
        "provenance": notes,
    }
    dumped = validated(Profile, profile, f"fit of {_sources(trace)}").model_dump(exclude_none=True)
    return Profile.model_validate(_rounded(dumped))


def _notes(trace: Trace, executions: pl.DataFrame) -> dict[str, str]:
    groups = executions["group"].n_unique()
    fitted = f"Fitted to {len(executions)} executions in {groups} groups of {_sources(trace)}."
    tables = (
        "nominal",
        "calls",
        "input_tokens",
        "growth_tokens",
        "output_tokens",
        "tool_wait_s",
        "setup_s",
        "scoring_s",
    )
    assumed = {
        "training": "Group size: median of the trace's groups. The rest is assumed.",
        "hardware": "Assumed, or as given to the fit: a trace does not say it.",
        "cells": "Assumed, or as given to the fit: a trace does not say it.",
    }
    others = ("reward", "compaction", "sub_agents", "failures", "timeouts")
    return assumed | dict.fromkeys((*tables, *others), fitted)


def _rounded(value: object) -> object:
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    return float(f"{value:.{SIGNIFICANT_DIGITS}g}") if isinstance(value, float) else value


def _sources(trace: Trace) -> str:
    return ", ".join(sorted(trace.executions["source"].unique().to_list()))


def _training(trace: Trace) -> Training:
    sizes = trace.executions.group_by("group_id").len()["len"].to_numpy()
    return Training(group_size=max(1, round(float(np.median(sizes)))), groups_per_step=32, steps=24)


def _nominal(taken: Samples, notes: dict[str, str]) -> Nominal:
    """Decode and prefill speed that explain the recorded time in the model best (non-negative least squares)."""
    known = taken.executions.filter(pl.col("model_s") > 0.0)
    if len(known) < FEWEST_EXECUTIONS:
        notes["nominal"] = "Assumed: the trace has no time in the model."
        return ASSUMED_NOMINAL
    output = known["sum_output_tokens"].to_numpy().astype(np.float64)
    new = known["unique_tokens"].to_numpy() - output
    seconds, _ = optimize.nnls(np.stack([output, new], axis=1), known["model_s"].to_numpy())
    if seconds[0] <= 0.0:
        notes["nominal"] = "Decode speed: output tokens over time in the model. Prefill speed assumed."
        return ASSUMED_NOMINAL.model_copy(update={"decode_tokens_per_s": float(output.sum() / known["model_s"].sum())})
    notes["nominal"] = "Decode and prefill speed: least squares on the time in the model of each execution."
    prefill = 1.0 / seconds[1] if seconds[1] > 0.0 else ASSUMED_NOMINAL.prefill_tokens_per_s
    return Nominal(decode_tokens_per_s=float(1.0 / seconds[0]), prefill_tokens_per_s=float(prefill))


def _calls(executions: pl.DataFrame) -> Calls:
    calls = np.maximum(1.0, executions["main_calls"].to_numpy().astype(np.float64))
    group, cut = executions["group"].to_numpy(), executions["cut"].to_numpy()
    law = fit_correlated(calls, group, cut, cap=float(calls.max()))
    mixture = fit_mixture(np.log(calls), group) if cut.mean() <= FEW_CUT else None
    if mixture is None:
        return Calls(**law.model_dump())
    members = {"sigma_member": mixture.sigma, "outlier_share": mixture.share, "sigma_outlier": mixture.sigma_outlier}
    return Calls(**(law.model_dump() | members))


def _first_inputs(executions: pl.DataFrame) -> Correlated:
    value = np.maximum(1.0, executions["first_input_tokens"].to_numpy().astype(np.float64))
    return fit_correlated(value, executions["group"].to_numpy(), cap=float(value.max()))


def _exact(taken: Samples) -> Samples:
    """The turns whose tokens were counted exactly, where enough executions have them."""
    exact = taken.executions.filter("exact_tokens")["execution"]
    if len(exact) < FEWEST_EXACT:
        return taken
    return replace(taken, turns=taken.turns.filter(pl.col("execution").is_in(exact.implode())))


def _two_part(taken: Samples, column: str, *, floor: float, long: float | None = None) -> TwoPart:
    """The tail begins at `long` if enough values lie beyond it, else at a high quantile."""
    turns = taken.turns.select("execution", column).drop_nulls()
    if turns.is_empty():
        return NO_LAW.model_copy(update={"median": floor})
    value = turns[column].to_numpy().astype(np.float64)
    order = taken.executions["execution"].to_numpy()
    member = np.searchsorted(order, turns["execution"].to_numpy())
    start = float(np.quantile(value, TAIL_QUANTILE))
    if long is not None and np.count_nonzero(value >= long) >= FEWEST_IN_TAIL:
        start = long
    return fit_two_part(
        value, member, taken.executions["group"].to_numpy(), tail_from=max(start, 2.0 * floor), floor=floor
    )


def _compaction(taken: Samples, notes: dict[str, str]) -> Compaction | None:
    rows = taken.compactions
    if rows.is_empty():
        return None
    after = positive(rows["context_after_tokens"])
    summary = positive(rows["summary_tokens"])
    if not len(summary):
        notes["compaction"] += (
            " Its summary calls are not in the trace: length as measured elsewhere (Claude Code, p50)."
        )
    return Compaction(
        threshold_tokens=round(float(np.median(positive(rows["context_before_tokens"])))),
        summary_tokens=fit_lognormal(summary, cap=float(summary.max())) if len(summary) else MEASURED_SUMMARY_TOKENS,
        context_after_tokens=fit_lognormal(after, cap=float(after.max())),
    )


def _sub_agents(taken: Samples) -> SubAgents:
    if taken.sub_agents.is_empty():
        return SubAgents()
    executions = taken.executions
    groups = executions.group_by("group").agg(uses=(pl.col("sub_agents") > 0).any())
    users = executions.filter(pl.col("group").is_in(groups.filter("uses")["group"].implode()))
    calls, first = positive(taken.sub_agents["calls"]), positive(taken.sub_agents["input_tokens"])
    return SubAgents(
        group_share=float(groups["uses"].to_numpy().mean()),
        per_call=min(1.0, len(taken.spawns) / max(1, int(users["main_calls"].sum()))),
        width=max(1.0, len(taken.sub_agents) / len(taken.spawns)),
        calls=fit_lognormal(calls, cap=float(calls.max())),
        input_tokens=fit_lognormal(first, cap=float(first.max())),
    )


def _failures(trace: Trace) -> Failures:
    outcome = trace.executions["outcome"].cast(pl.String)
    retries = int((trace.calls["relation"].cast(pl.String) == Relation.RETRY.value).sum())
    return Failures(
        setup=float((outcome == Outcome.ENV_SETUP_FAILED.value).sum() / len(outcome)),
        scoring=float((outcome == Outcome.SCORE_FAILED.value).sum() / len(outcome)),
        retry=float(retries / max(1, len(trace.calls) - retries)),
    )


def _timeouts(trace: Trace) -> Timeouts:
    """The shortest time at which each kind of time-out was seen: the limits of a trace may differ between tasks."""

    def limit(outcome: Outcome) -> float | None:
        wall = trace.executions.filter(pl.col("outcome") == outcome.value)["wall_s"].drop_nulls()
        wall = wall.filter(wall > 0.0)
        return float(np.median(wall.to_numpy())) if len(wall) else None

    return Timeouts(harness_s=limit(Outcome.HARNESS_TIMEOUT), overall_s=limit(Outcome.OVERALL_TIMEOUT))
