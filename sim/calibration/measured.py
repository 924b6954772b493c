"""All figures of a run's hardware: what was measured, and what was not and is taken from elsewhere."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Final

import numpy as np

from gyre.cluster import CellRole

from .cell_times import CellTimes
from .engine_fit import EngineTimes
from .robust import Estimate, fit, typical

_MS: Final = 1e3
_FEW_MOVES: Final = 5  # below it rehearsed ones count too


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of the profile."""

    section: str
    key: str
    value: float
    unit: str
    spread: float | None = None  # standard error; None: not measured
    samples: int = 0
    source: str = ""  # what it was measured on, or where it comes from

    def to_json(self) -> dict[str, Any]:
        """The figure as JSON-ready values."""
        return asdict(self)


@dataclass(slots=True)
class Measured:
    """Collects figures; `sections` is what a hardware profile takes."""

    figures: list[Figure] = field(default_factory=list)

    @property
    def sections(self) -> dict[str, dict[str, float]]:
        """Keys of the profile, by section."""
        sections: dict[str, dict[str, float]] = {}
        for figure in self.figures:
            if figure.section != "details":
                sections.setdefault(figure.section, {})[figure.key] = figure.value
        return sections

    def add(self, section: str, key: str, estimate: Estimate, unit: str, source: str, *, factor: float = 1.0) -> None:
        """Add a measured figure, its unit `factor` to the estimate's."""
        value, spread = estimate.value * factor, estimate.spread * factor
        self.figures.append(Figure(section, key, value, unit, spread, estimate.samples, source))

    def assume(self, section: str, key: str, value: float, unit: str, source: str) -> None:
        """Add a figure that the run does not show."""
        self.figures.append(Figure(section, key, value, unit, source=source))

    def engines(self, times: EngineTimes) -> None:
        """Decode and prefill."""
        replies, firsts = f"{times.replies:,} replies", f"{times.first_tokens:,} prefills"
        least = max(times.a.value, 1e-9)  # a profile's decode step takes time
        self.add("decode", "a_ms", Estimate(least, times.a.spread, times.a.samples), "ms", replies, factor=_MS)
        self.add("decode", "b_ms", times.b, "ms a sequence", replies, factor=_MS)
        self.add("decode", "c_ms", times.c, "ms a token of context", replies, factor=_MS)
        free = not (times.p0.value or times.p1.value)  # a few short prompts tell nothing
        first = Estimate(1e-9 if free else times.p0.value, times.p0.spread, times.p0.samples)
        self.add("prefill", "p0_ms", first, "ms", firsts, factor=_MS)
        self.add("prefill", "p1_ms", times.p1, "ms a new token", firsts, factor=_MS)
        self.add("prefill", "p2_ms", times.p2, "ms a pair of tokens", firsts, factor=_MS)

    def cells(self, times: CellTimes) -> None:
        """Switches, publishes, updates and micro-steps."""
        self._or_zero("publish", "fixed_s", times.publishes, "publishes, from the command to the last engine")
        given = typical(times.transfers.get("publish", [])) or typical(times.publishes)
        given_s = 0.0 if given is None else given.value  # the part of a publish that one engine takes
        self._switches(times, given_s)
        joins, waits = self._micro_steps(times)
        if times.satellite_waits:
            pull_s = joins + max(0.0, _median(times.satellite_waits) - waits)
            source = f"{len(times.satellite_waits)} joins: the wait for a first micro-step, beyond the core's"
            self.figures.append(Figure("publish", "pull_s", pull_s, "s", None, len(times.satellite_waits), source))
        else:
            self.assume("publish", "pull_s", given_s, "s", "no satellite joined; taken to be an engine's publish")
        self._or_zero("training", "update_s", times.updates, "updates")
        self._checkpoints(times)
        for step, seconds in times.transfers.items():
            if (estimate := typical(seconds)) is not None:
                self.add("details", step, estimate, "s", f"{len(seconds)} steps of moves or publishes")

    def _switches(self, times: CellTimes, given_s: float) -> None:
        for key, role, otherwise, why in (
            ("to_training_s", CellRole.TRAINING, 0.0, "none seen; taken to be 0"),
            ("to_serving_s", CellRole.SERVING, given_s, "none seen; taken to be an engine's publish, which it holds"),
        ):
            seen, rehearsed = times.switches[role], times.rehearsals[role]
            if len(seen) < _FEW_MOVES and rehearsed:  # perhaps one alone, while all harnesses started
                source = f"moves: {len(seen)}, and {len(rehearsed)} rehearsed before the run began"
                estimate = typical(seen + rehearsed)
            else:
                source, estimate = f"{len(seen)} moves, from the command to the state", typical(seen)
            if estimate is None:
                self.assume("switch", key, otherwise, "s", why)
            else:
                self.add("switch", key, estimate, "s", source)

    def _checkpoints(self, times: CellTimes) -> None:
        """Not every update may be saved: the figure is the mean over all updates."""
        one, share = typical(times.checkpoints), len(times.checkpoints) / max(1, len(times.updates))
        estimate = Estimate(0.0, 0.0, 0) if one is None else one
        source = f"{estimate.samples} checkpoints"
        self.add("training", "checkpoint_s", estimate, "s an update", source, factor=share)

    def _micro_steps(self, times: CellTimes) -> tuple[float, float]:
        """Return seconds that a satellite's first micro-step takes longer, and the core's wait for one."""
        steps, waits = times.micro_steps, _median(times.core_waits)
        source = f"{len(steps):,} micro-steps"
        if not steps:
            self.assume("training", "tokens_per_s_per_gpu", 1e12, "tokens/s", "no micro-step seen; taken to be free")
            self.assume("training", "micro_step_overhead_s", 0.0, "s", "no micro-step seen; taken to be 0")
            return 0.0, waits
        rows = np.array([(1.0, step.tokens / step.gpus, float(step.joins)) for step in steps])
        seconds = np.array([step.seconds for step in steps])
        overhead, token, joins = fit(rows, seconds)
        rate = 1.0 / max(token.value, 1e-12)
        self.add(
            "training",
            "tokens_per_s_per_gpu",
            Estimate(rate, rate * rate * token.spread, token.samples),
            "tokens/s",
            source,
        )
        self.add("training", "micro_step_overhead_s", overhead, "s", source)
        estimate = typical(times.core_waits)
        if estimate is None:
            self.assume("training", "offer_s", 0.0, "s a group", "the core never waited for work; taken to be 0")
        else:
            self.add("training", "offer_s", estimate, "s a group", f"{estimate.samples} waits of the core for work")
        return joins.value, waits

    def _or_zero(self, section: str, key: str, seconds: list[float], what: str) -> None:
        estimate = typical(seconds)
        if estimate is None:
            self.assume(section, key, 0.0, "s", f"no {what}; taken to be 0")
        else:
            self.add(section, key, estimate, "s", f"{len(seconds)} {what}")


def _median(values: list[float]) -> float:
    return float(np.median(values)) if values else 0.0
