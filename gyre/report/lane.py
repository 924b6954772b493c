"""What one cell did over a run: a list of uses that follow each other without gap or overlap."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field

from ..cluster import CellSpec, CellState
from .use import CellUse, GpuUse


@dataclass(slots=True)
class Lane:
    """One cell's uses. Use `uses[i]` lasts from `starts[i]` to `starts[i + 1]`, the last one until now."""

    spec: CellSpec
    state: CellState
    starts: list[float] = field(default_factory=list)
    uses: list[CellUse] = field(default_factory=list)
    micro_steps: int = 0  # claimed and not yet returned
    metered_s: list[float] = field(default_factory=list)  # times of load reports
    busy_s: list[float] = field(default_factory=list)  # what they said

    def turn(self, now_s: float, use: CellUse) -> None:
        """Begin `use` at `now_s`; a use that lasted no time leaves no trace."""
        uses, starts = self.uses, self.starts
        if not uses:
            starts.append(now_s)
            uses.append(use)
        elif uses[-1] is use:
            return
        elif starts[-1] < now_s:
            starts.append(now_s)
            uses.append(use)
        elif len(uses) > 1 and uses[-2] is use:
            del starts[-1], uses[-1]
        else:
            uses[-1] = use

    def relabel(self, from_s: float, old: CellUse, new: CellUse) -> None:
        """Call the present use `new` from `from_s` on, if it is `old`."""
        if self.uses and self.uses[-1] is old:
            self.turn(max(from_s, self.starts[-1]), new)

    def segments(self, end_s: float) -> Iterator[tuple[float, float, CellUse]]:
        """Yield (start_s, end_s, use) up to `end_s`, in order."""
        for index, use in enumerate(self.uses):
            start_s = self.starts[index]
            stop_s = self.starts[index + 1] if index + 1 < len(self.starts) else end_s
            if stop_s > start_s:
                yield start_s, stop_s, use

    def serving_s(self, until_s: float) -> float:
        """Return the time spent serving before `until_s`."""
        last = bisect_left(self.starts, until_s)
        ends = [*self.starts[1:last], until_s][:last]  # nothing started before the run's first moment
        return sum(
            stop_s - start_s
            for start_s, stop_s, use in zip(self.starts[:last], ends, self.uses[:last], strict=True)
            if use is CellUse.SERVING
        )

    def gpu_seconds(self, end_s: float) -> dict[GpuUse, float]:
        """Return GPU-seconds by use up to `end_s`; they sum to GPUs times the lane's length."""
        seconds = dict.fromkeys(CellUse, 0.0)
        for start_s, stop_s, use in self.segments(end_s):
            seconds[use] += stop_s - start_s
        serving_s = seconds.pop(CellUse.SERVING)
        metered_s = min(serving_s, self.serving_s(min(self.metered_s[-1], end_s))) if self.metered_s else 0.0
        busy_s = min(self.busy_s[-1], metered_s) if self.busy_s else 0.0
        result = {GpuUse(use.value): value * self.spec.gpus for use, value in seconds.items()}
        result[GpuUse.SERVING_BUSY] = busy_s * self.spec.gpus
        result[GpuUse.SERVING_IDLE] = (metered_s - busy_s) * self.spec.gpus
        result[GpuUse.SERVING_UNMETERED] = (serving_s - metered_s) * self.spec.gpus
        return {use: result[use] for use in GpuUse}
