"""Titles and units of the quantities in `samples`; per execution unless the title says otherwise."""

from __future__ import annotations

from typing import Final

TITLES: Final[dict[str, tuple[str, str]]] = {
    "duration_s": ("duration", "s"),
    "wall_s": ("wall time", "s"),
    "model_s": ("time in the model", "s"),
    "calls": ("calls", ""),
    "main_calls": ("main-thread calls", ""),
    "unique_tokens": ("unique tokens", "tokens"),
    "sum_input_tokens": ("sum of inputs", "tokens"),
    "sum_output_tokens": ("sum of outputs", "tokens"),
    "longest_context_tokens": ("longest context", "tokens"),
    "first_input_tokens": ("first input", "tokens"),
    "first_wait_s": ("first wait", "s"),
    "output_tokens_per_call": ("output a call", "tokens"),
    "growth_tokens_per_call": ("new input a call", "tokens"),
    "tool_wait_s_per_call": ("tool wait a call", "s"),
    "subagent_join_wait_s_per_call": ("wait after sub-agents", "s"),
    "human_wait_s_per_call": ("wait for a person", "s"),
    "queue_wait_s_per_call": ("other wait", "s"),
    "longest_over_median": ("longest / median of a group", ""),
    "setup_s": ("set-up", "s"),
    "scoring_s": ("scoring", "s"),
    "compaction_context_tokens": ("compacted context", "tokens"),
    "compaction_summary_tokens": ("summary", "tokens"),
    "compaction_next_context_tokens": ("context after", "tokens"),
    "sub_agents_per_execution": ("sub-agents (if any)", ""),
    "sub_agent_calls": ("calls a sub-agent", ""),
    "sub_agents_at_once": ("spawned at once", ""),
}


def titled(name: str) -> str:
    """Title with its unit, where it does not name it already."""
    title, unit = TITLES[name]
    return f"{title}, {unit}" if unit and unit not in title.split() else title


def short_number(value: float) -> str:
    """Three significant digits with K, M or G: 167 K, 1.93, 0.043."""
    size = abs(value)
    for scale, letter in ((1e9, " G"), (1e6, " M"), (1e4, " K")):
        if size >= scale:
            return f"{_digits(value / (1e3 if letter == ' K' else scale))}{letter}"
    return _digits(value)


def _digits(value: float) -> str:
    if value == 0.0:
        return "0"
    size = abs(value)
    return f"{value:,.0f}" if size >= 100.0 else f"{value:.3g}"
