"""The objectives as plain loops over rows, with gradients by hand: a reference in Python floats."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from gyre.trajectory.samples import Samples

Key = tuple[int, int]
"""Execution and edge."""


class Token(NamedTuple):
    """A trained token of a row."""

    new: float
    old: float
    weight: float
    mean_weight: float
    reference: float


class Term(NamedTuple):
    """What a token adds to the objective, its derivative by the token's new log-probability, and what was measured."""

    value: float
    slope: float
    clipped: bool
    ratio: float


@dataclass
class Result:
    """Loss, its gradient, and sums over trained tokens."""

    loss: float = 0.0
    gradient: defaultdict[Key, float] = field(default_factory=lambda: defaultdict(float))
    tokens: int = 0
    clipped: int = 0
    ratio_sum: float = 0.0
    kl_sum: float = 0.0


Loop = Callable[[list[Token]], list[Term]]


def clip(value: float, low: float, high: float) -> float:
    """Bound a value."""
    return min(max(value, 1 - low), 1 + high)


def surrogate(ratio: float, weight: float, low: float, high: float) -> Term:
    """The clipped objective of one token; the derivative of a ratio by its log is the ratio."""
    bounded = clip(ratio, low, high)
    if ratio * weight <= bounded * weight:
        return Term(ratio * weight, ratio * weight, False, ratio)
    return Term(bounded * weight, 0.0, True, ratio)


def ppo(low: float, high: float, dual: float = math.inf) -> Loop:
    """PPO, with a dual clip if `dual` is finite."""

    def row(tokens: list[Token]) -> list[Term]:
        terms = []
        for token in tokens:
            term = surrogate(math.exp(token.new - token.old), token.weight, low, high)
            if token.weight < 0 and term.value < dual * token.weight:
                term = Term(dual * token.weight, 0.0, True, term.ratio)
            terms.append(term)
        return terms

    return row


def grpo(low: float, high: float, beta: float) -> Loop:
    """GRPO with its KL term."""

    def row(tokens: list[Token]) -> list[Term]:
        terms = []
        for token in tokens:
            term = surrogate(math.exp(token.new - token.old), token.weight, low, high)
            q = math.exp(token.reference - token.new)
            value = term.value - beta * token.mean_weight * (q - math.log(q) - 1)
            slope = term.slope - beta * token.mean_weight * (1 - q)
            terms.append(Term(value, slope, term.clipped, term.ratio))
        return terms

    return row


def gspo(low: float, high: float) -> Loop:
    """GSPO in its sequence form: the sequence's ratio is a geometric mean, so each log-probability has 1/n of it."""

    def row(tokens: list[Token]) -> list[Term]:
        if not tokens:
            return []
        ratio = math.exp(sum(token.new - token.old for token in tokens) / len(tokens))
        whole = sum(token.weight for token in tokens)
        term = surrogate(ratio, whole, low, high)
        n = len(tokens)
        return [Term(term.value / n, term.slope / n, term.clipped, ratio) for _ in tokens]

    return row


def capped_gspo(low: float, high: float, cap: float) -> Loop:
    """Tokens weighted min(r, cap); none of a sequence has a gradient where the sequence is clipped."""

    def row(tokens: list[Token]) -> list[Term]:
        if not tokens:
            return []
        ratio = math.exp(sum(token.new - token.old for token in tokens) / len(tokens))
        terms = []
        for token in tokens:
            importance = min(math.exp(token.new - token.old), cap)
            held = surrogate(ratio, token.weight, low, high).clipped
            value = importance * token.weight * (clip(ratio, low, high) / ratio if held else 1.0)
            terms.append(Term(value, 0.0 if held else importance * token.weight, held, ratio))
        return terms

    return row


def run(loop: Loop, samples: Samples, new: dict[Key, float], reference: dict[Key, float]) -> Result:
    """Loss and gradient of all rows; weights as a micro-step holds them, in float32."""
    result = Result()
    weights = samples.loss_weights().astype(np.float32)
    means = samples.executions.mean_weight.astype(np.float32)
    for row in range(samples.rows):
        execution = int(samples.row_execution[row])
        places = [t for t in range(samples.row_start[row], samples.row_start[row + 1]) if samples.loss_mask[t]]
        row_keys = [(execution, int(samples.edges[t])) for t in places]
        tokens = [
            Token(new[key], float(samples.logprobs[t]), float(weights[t]), float(means[execution]), reference[key])
            for key, t in zip(row_keys, places, strict=True)
        ]
        for key, token, term in zip(row_keys, tokens, loop(tokens), strict=True):
            result.loss -= term.value
            result.gradient[key] -= term.slope
            result.tokens += 1
            result.clipped += term.clipped
            result.ratio_sum += term.ratio
            result.kl_sum += math.exp(token.new - token.old) - 1 - (token.new - token.old)
    return result
