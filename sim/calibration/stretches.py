"""Calls as engines saw them: each stretch of a reply on one engine, with its times on the run's clock."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from gyre.trajectory.call import CallRecord
from gyre.workload.recorded_run.folder import RunFolder


@dataclass(frozen=True, slots=True)
class Stretch:
    """What one engine did for one call; times in seconds since the run began."""

    engine: str
    arrived_s: float  # it was given the request
    first_s: float  # its first token came; NaN where that is not known
    ended_s: float
    input_tokens: int  # with what other engines had sampled before
    cached_tokens: int  # of these; -1: unknown
    output_tokens: int
    whole: bool  # the reply from its first token to its last

    @property
    def measures(self) -> bool:
        """Whether its times can be compared with the model's."""
        return self.whole and self.output_tokens > 0 and self.arrived_s <= self.first_s <= self.ended_s


@dataclass(frozen=True, slots=True)
class Stretches:
    """All stretches of a run, and how many calls say nothing of their engines."""

    all: tuple[Stretch, ...]
    untimed: int


def stretches_of(run: RunFolder) -> Stretches:
    """Read the calls of all executions of a run, those that were not finished too: they held engines as well."""
    found: list[Stretch] = []
    untimed = 0
    for execution in run.history.executions.values():
        name = run.name(execution)
        if name is None or execution.begun_s is None:
            continue
        calls = [call for call in run.calls(name) if isinstance(call, CallRecord)]
        untimed += sum(not call.placements or math.isnan(call.end_s) for call in calls)
        found += (stretch for call in calls for stretch in _of_call(call, execution.begun_s))
    return Stretches(tuple(found), untimed)


def _of_call(call: CallRecord, begun_s: float) -> Iterable[Stretch]:
    """A call's times count from its execution's start."""
    if math.isnan(call.end_s):
        return
    places = call.placements
    for at, place in enumerate(places):
        last = at + 1 == len(places)
        end_s = call.end_s if last else places[at + 1].at_s
        tokens = (len(call.output_ids) if last else places[at + 1].tokens) - place.tokens
        yield Stretch(
            engine=place.engine,
            arrived_s=begun_s + place.at_s,
            first_s=begun_s + call.first_s if place.tokens == 0 and tokens > 0 else math.nan,
            ended_s=begun_s + end_s,
            input_tokens=len(call.input_ids) + place.tokens,
            cached_tokens=call.cached_tokens if last else -1,
            output_tokens=tokens,
            whole=len(places) == 1,
        )
