"""Turns of threads with their tokens and waits: what the draws become under a profile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ...arrays import FloatArray, Int64Array
from .bounds import MOST_TOKENS
from .contexts import grow
from .draws import COLUMNS, Draws
from .profile import Compaction, Profile
from .quantiles import lognormal_quantile, two_part_quantile

# A first input or a compacted context above this share of the threshold would leave a thread no room to work in.
ROOM: Final = 0.8


@dataclass(frozen=True, slots=True)
class Turns:
    """T turns of H threads, in thread order; tokens at least 1."""

    first: Int64Array  # H, first turn of each thread
    thread: Int64Array  # T
    input_tokens: Int64Array  # T
    output_tokens: Int64Array  # T
    wait_s: FloatArray  # T, before the turn; 0 at the first of a sub-agent's thread
    compacted: npt.NDArray[np.bool_]  # T: a summary comes before the turn
    summary_tokens: Int64Array  # T, output of that summary; read where compacted
    retried: npt.NDArray[np.bool_]  # T: the turn fails once and is sent again
    spent_share: FloatArray  # T, share of its output that a failed attempt had written; read where retried


def turns_of(draws: Draws, profile: Profile) -> Turns:
    """Tokens, waits, compactions and retries of every turn."""
    first = np.cumsum(draws.thread_turns) - draws.thread_turns
    thread = np.repeat(np.arange(len(first)), draws.thread_turns)
    execution = draws.thread_execution[thread]
    uniform = {name: draws.uniform[:, column] for column, name in enumerate(COLUMNS)}

    def drawn(law_name: str, column: str) -> FloatArray:
        return two_part_quantile(getattr(profile, law_name), uniform[column], draws.effect[law_name][execution])

    output = _tokens(drawn("output_tokens", "output"))
    wait = drawn("tool_wait_s", "wait")
    wait[first] = 0.0
    if profile.first_wait_s is not None:
        opening = first[draws.thread_number == 0]  # E: an execution's main thread comes first
        effect = draws.effect["first_wait_s"]
        wait[opening] = two_part_quantile(profile.first_wait_s, uniform["wait"][opening], effect)
    contexts = grow(
        first,
        _first_inputs(draws, profile),
        _tokens(drawn("growth_tokens", "growth")),
        output,
        threshold_tokens=profile.compaction.threshold_tokens if profile.compaction else None,
        after_tokens=_context_after(profile.compaction, uniform["context_after"]),
    )
    retry = profile.failures.retry
    retried = (uniform["retry"] < retry) & ~contexts.compacted
    # A compacted turn is never retried, so its uniform for that is free to draw the length of the summary.
    summary = profile.compaction.summary_tokens if profile.compaction else None
    return Turns(
        first=first,
        thread=thread,
        input_tokens=contexts.input_tokens,
        output_tokens=output,
        wait_s=wait,
        compacted=contexts.compacted,
        summary_tokens=_tokens(lognormal_quantile(summary, uniform["retry"])) if summary else np.zeros_like(output),
        retried=retried,
        spent_share=np.where(retried, uniform["retry"] / max(retry, 1e-300), 0.0),
    )


def _first_inputs(draws: Draws, profile: Profile) -> Int64Array:
    effect = draws.effect["input_tokens"][draws.thread_execution]
    sub_agent = profile.sub_agents.input_tokens
    main = np.minimum(profile.input_tokens.median * np.exp(effect), profile.input_tokens.cap or np.inf)
    spawned = np.minimum(sub_agent.median * np.exp(sub_agent.sigma * draws.first_input_normal), sub_agent.cap or np.inf)
    tokens = _tokens(np.where(draws.thread_number == 0, main, spawned))
    return np.minimum(tokens, _room(profile.compaction)) if profile.compaction else tokens


def _context_after(compaction: Compaction | None, uniform: FloatArray) -> Int64Array:
    if compaction is None:
        return np.zeros(len(uniform), np.int64)
    return np.minimum(_tokens(lognormal_quantile(compaction.context_after_tokens, uniform)), _room(compaction))


def _room(compaction: Compaction) -> int:
    return max(1, int(ROOM * compaction.threshold_tokens))


def _tokens(value: FloatArray) -> Int64Array:
    return np.clip(np.rint(value), 1, MOST_TOKENS).astype(np.int64)
