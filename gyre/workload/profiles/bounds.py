"""The largest values that a profile may hold: beyond them its draws would overflow, fill the memory or never end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

MOST_CALLS: Final = 100_000  # of an execution's main thread, and of one sub-agent
MOST_TOKENS: Final = 100_000_000  # of a call's new input or output; sums over `MOST_CALLS` still fit into int64
MOST_SECONDS: Final = 1e9
MOST_SIGMA: Final = 20.0  # of a natural logarithm: e to the 20 is 5e8
_SIZES: Final[dict[str, float]] = {
    "calls": MOST_CALLS,
    "input_tokens": MOST_TOKENS,
    "growth_tokens": MOST_TOKENS,
    "output_tokens": MOST_TOKENS,
    "tool_wait_s": MOST_SECONDS,
    "first_wait_s": MOST_SECONDS,
    "setup_s": MOST_SECONDS,
    "scoring_s": MOST_SECONDS,
    "sub_agents.calls": MOST_CALLS,
    "sub_agents.input_tokens": MOST_TOKENS,
    "compaction.summary_tokens": MOST_TOKENS,
    "compaction.context_after_tokens": MOST_TOKENS,
}
_SIZE_KEYS: Final = ("median", "cap", "tail_from")
_SIGMA_KEYS: Final = ("sigma", "sigma_group", "sigma_member", "sigma_outlier")
_RANGES: Final[dict[str, tuple[float, float]]] = {
    "cells": (1, 100_000),
    "training.group_size": (1, 10_000),
    "training.groups_per_step": (1, 1_000_000),
    "training.steps": (1, 10_000_000),
    "nominal.decode_tokens_per_s": (1e-6, 1e12),
    "nominal.prefill_tokens_per_s": (1e-6, 1e12),
    "compaction.threshold_tokens": (2, MOST_TOKENS),
    "sub_agents.width": (1, 1_000),
    "reward.levels": (1, 1_000_000),
    "reward.concentration": (1e-6, 1e12),
}


def out_of_bounds(profile: Mapping[str, Any]) -> str | None:
    """What is wrong with the first value of a dumped profile that lies out of bounds, by its field; None if all do."""
    for field, (least, most) in _all_ranges().items():
        value = _value(profile, field)
        if value is not None and not least <= value <= most:
            return f"{field}: must lie between {least:,g} and {most:,.0f} (got {value:,g})"
    return None


def _all_ranges() -> dict[str, tuple[float, float]]:
    """Least and most of every bounded field; sizes have no least beside the schema's own."""
    sizes = {f"{law}.{key}": (0.0, most) for law, most in _SIZES.items() for key in _SIZE_KEYS}
    sigmas = {f"{law}.{key}": (0.0, MOST_SIGMA) for law in _SIZES for key in _SIGMA_KEYS}
    return sizes | sigmas | _RANGES


def _value(profile: Mapping[str, Any], field: str) -> float | None:
    found: Any = profile
    for key in field.split("."):
        found = found.get(key) if isinstance(found, Mapping) else None
    return None if found is None else float(found)
