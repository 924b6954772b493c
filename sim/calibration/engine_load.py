"""What one engine had to do at every moment, by the recorded stretches: sequences, contexts, prefills."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gyre.arrays import BoolArray, FloatArray, Int64Array

from .stretches import Stretch

StepTime = tuple[float, float, float]  # a, b, c: seconds of an iteration are a + b n + c S


@dataclass(frozen=True, slots=True)
class Prefill:
    """Requests whose first tokens came together."""

    began_s: float
    first_s: float
    ended_s: float  # of the last reply; weights published before may have made the engine count its cache again
    known: bool  # how much of each request was cached: of one that went elsewhere the engine did not say
    waited: bool  # for the end of an iteration: it began within one
    new_tokens: float
    attended: float  # sum of N (F + N/2)


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """One engine: D stretches that decode, K moments at which their number changes."""

    decoding: tuple[Stretch, ...]  # D, with a known first token
    moments: FloatArray  # K, sorted
    sequences: FloatArray  # K, from each moment on
    contexts: FloatArray  # K, tokens in the middle of the time from each moment on
    stalled: BoolArray  # K, a prefill is on
    prefills: tuple[Prefill, ...]  # by first_s

    def averages(self, step: StepTime) -> tuple[FloatArray, FloatArray]:
        """Return mean sequences and contexts over the iterations of each stretch, (D,) each.

        Iterations pass faster where fewer sequences are active; `step` says by how much.
        """
        a, b, c = step
        lengths = np.diff(self.moments, append=self.moments[-1:])
        passed = np.where(self.stalled, 0.0, lengths) / (a + b * self.sequences + c * self.contexts)
        cumulated = [np.concatenate(([0.0], np.cumsum(passed * of))) for of in (1.0, self.sequences, self.contexts)]
        begin, end = self._places("first_s"), self._places("ended_s")
        iterations, sequences, contexts = (sums[end] - sums[begin] for sums in cumulated)
        iterations = np.maximum(iterations, 1e-12)
        return sequences / iterations, contexts / iterations

    def at(self, time_s: float) -> tuple[float, float]:
        """Return sequences and contexts just before a time."""
        place = int(np.searchsorted(self.moments, time_s, side="left")) - 1
        return (float(self.sequences[place]), float(self.contexts[place])) if place >= 0 else (0.0, 0.0)

    def prefills_within(self) -> tuple[Int64Array, Int64Array]:
        """Return places in `prefills` of the first that ends within each stretch's decode and of the first after."""
        ends = np.array([prefill.first_s for prefill in self.prefills])
        begin = np.array([stretch.first_s for stretch in self.decoding])
        end = np.array([stretch.ended_s for stretch in self.decoding])
        return np.searchsorted(ends, begin, side="right"), np.searchsorted(ends, end, side="right")

    def _places(self, name: str) -> Int64Array:
        return np.searchsorted(self.moments, np.array([getattr(stretch, name) for stretch in self.decoding]))


def engine_loads(stretches: Sequence[Stretch]) -> list[EngineLoad]:
    """Return the load of each engine, in the order of their names."""
    together_s = 0.3 * _typical_step_s(stretches)
    engines = sorted({stretch.engine for stretch in stretches})
    return [_load([one for one in stretches if one.engine == engine], together_s) for engine in engines]


def _typical_step_s(stretches: Sequence[Stretch]) -> float:
    steps = [
        (stretch.ended_s - stretch.first_s) / (stretch.output_tokens - 1)
        for stretch in stretches
        if stretch.measures and stretch.output_tokens > 1
    ]
    return float(np.median(steps)) if steps else 0.0


def _load(stretches: list[Stretch], together_s: float) -> EngineLoad:
    decoding = tuple(stretch for stretch in stretches if stretch.first_s <= stretch.ended_s)  # NaN is not
    first = np.array([stretch.first_s for stretch in decoding])
    end = np.array([stretch.ended_s for stretch in decoding])
    # Where the first token is not known, what ran counts from its arrival on.
    unknown = [stretch for stretch in stretches if not stretch.first_s <= stretch.ended_s]
    begins = np.concatenate((first, [stretch.arrived_s for stretch in unknown]))
    ends = np.concatenate((end, [stretch.ended_s for stretch in unknown]))
    tokens = np.array([one.input_tokens for one in (*decoding, *unknown)], np.float64)
    outputs = np.array([one.output_tokens for one in (*decoding, *unknown)], np.float64)
    moments = np.unique(np.concatenate((begins, ends)))
    sequences, contexts = _occupied(moments, begins, ends, tokens, outputs)
    load = EngineLoad(decoding, moments, sequences, contexts, np.zeros(len(moments), np.bool_), ())
    prefills = tuple(_prefills(decoding, load, together_s))
    moments = np.unique(
        np.concatenate((moments, [time_s for one in prefills for time_s in (one.began_s, one.first_s)]))
    )
    sequences, contexts = _occupied(moments, begins, ends, tokens, outputs)
    return EngineLoad(decoding, moments, sequences, contexts, _stalled(moments, prefills), prefills)


def _stalled(moments: FloatArray, prefills: Sequence[Prefill]) -> BoolArray:
    changes = np.zeros(len(moments) + 1)
    for prefill in prefills:
        changes[np.searchsorted(moments, prefill.began_s)] += 1
        changes[np.searchsorted(moments, prefill.first_s)] -= 1
    return np.cumsum(changes)[:-1] > 0


def _occupied(
    moments: FloatArray, begins: FloatArray, ends: FloatArray, tokens: FloatArray, outputs: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return sequences and contexts from each moment to the next; a reply's tokens come evenly in time."""
    middles = (moments + np.append(moments[1:], moments[-1:])) / 2
    count = np.zeros(len(moments) + 1)
    at_0, slope = np.zeros(len(moments) + 1), np.zeros(len(moments) + 1)  # contexts are at_0 + slope * time
    begin, end = np.searchsorted(moments, begins), np.searchsorted(moments, ends)
    rate = outputs / np.maximum(ends - begins, 1e-9)
    for place, sign in ((begin, 1.0), (end, -1.0)):
        np.add.at(count, place, sign)
        np.add.at(at_0, place, sign * (tokens - rate * begins))
        np.add.at(slope, place, sign * rate)
    count, at_0, slope = (np.cumsum(values)[:-1] for values in (count, at_0, slope))
    return count, np.maximum(at_0 + slope * middles, 0.0)


def _prefills(decoding: Sequence[Stretch], load: EngineLoad, together_s: float) -> list[Prefill]:
    """Group requests by their first tokens; a prefill begins when the request is there and the one before has ended."""
    found: list[Prefill] = []
    group: list[Stretch] = []
    last_s = -np.inf
    for stretch in sorted(decoding, key=lambda one: one.first_s):
        if group and stretch.first_s - group[0].first_s > together_s:
            found.append(_prefill(group, load, last_s))
            last_s, group = found[-1].first_s, []
        group.append(stretch)
    if group:
        found.append(_prefill(group, load, last_s))
    return found


def _prefill(group: list[Stretch], load: EngineLoad, last_s: float) -> Prefill:
    arrived_s = min(stretch.arrived_s for stretch in group)
    new = [max(1, one.input_tokens - max(0, one.cached_tokens)) for one in group]
    attended = sum(n * (one.input_tokens - n / 2) for n, one in zip(new, group, strict=True))
    return Prefill(
        began_s=max(arrived_s, last_s),
        first_s=max(stretch.first_s for stretch in group),
        ended_s=max(stretch.ended_s for stretch in group),
        known=all(stretch.cached_tokens >= 0 for stretch in group),
        waited=arrived_s > last_s and load.at(arrived_s)[0] > 0,
        new_tokens=float(sum(new)),
        attended=float(attended),
    )
