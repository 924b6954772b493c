"""Which call releases each call, and which calls wait for sub-agents: inferred from threads and times."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from ..schema import WaitKind
from .drafts import DraftCall


@dataclass(frozen=True, slots=True)
class Release:
    """`wait_kind` is None where the call's own kind stands."""

    after_call: int | None
    wait_s: float
    wait_kind: WaitKind | None


@dataclass(slots=True)
class _Thread:
    """What is known of a thread when the scan reaches a call."""

    last: int | None = None  # its latest call so far
    open: dict[int, int | None] = field(default_factory=dict)  # not joined yet: its spawner


def releases(calls: Sequence[DraftCall], tolerance_s: float) -> list[Release]:
    """One `Release` a call; `calls` are in order of start.

    - A call comes after the one before it in its thread; a sub-agent's first call after the call that spawned it if the
      source names it, else after the latest call of its parent thread; any other first call after set-up.
    - Of several sub-agents of one call, one that starts after others have ended comes after the last of them (harnesses
      run the tool calls of one message one after another).
    - A call joins all sub-agents that its thread has spawned and not joined, if every one of them has ended, by index
      and within `tolerance_s` by the clock, before the call starts. If one still runs (a background agent), the call
      joins none and its recorded wait covers them.
    - The wait is the recorded one, else the time from release to start, at least 0; for a join it is the time after
      the last of the joined threads has ended.
    """
    ends = _ThreadEnds(calls)
    number_of = {id(call): number for number, call in enumerate(calls)}
    threads: dict[int, _Thread] = {}
    result: list[Release] = []
    for number, call in enumerate(calls):
        thread = threads.get(call.thread)
        if thread is None:
            thread = threads[call.thread] = _Thread()
            after = _spawner(call, threads, number_of, ends)
            kind = WaitKind.START
        else:
            after, kind = thread.last, None
        wait_s = call.wait_s if call.wait_s is not None else _since(call, None if after is None else calls[after].end_s)
        if kind is None and thread.open and ends.all_before(thread.open, number, call.start_s, tolerance_s):
            wait_s = min(wait_s, _since(call, ends.latest(thread.open)))
            kind = WaitKind.SUBAGENT_JOIN
            thread.open = {}
        result.append(Release(after, wait_s, kind))
        thread.last = number
    return result


def _spawner(call: DraftCall, threads: dict[int, _Thread], number_of: dict[int, int], ends: _ThreadEnds) -> int | None:
    """What releases a thread's first call; the thread is noted as open at its parent."""
    parent = None if call.parent_thread is None else threads.get(call.parent_thread)
    if parent is None:
        return None
    spawn = parent.last if call.spawned_by is None else number_of[id(call.spawned_by)]
    siblings = [thread for thread, spawned in parent.open.items() if spawned == spawn]
    parent.open[call.thread] = spawn
    ended = [thread for thread in siblings if ends.all_before([thread], number_of[id(call)], call.start_s, 0.0)]
    timed = [thread for thread in ended if ends.latest([thread]) is not None and call.start_s is not None]
    return spawn if not timed else ends.last_call(max(timed, key=lambda thread: ends.latest([thread]) or 0.0))


class _ThreadEnds:
    """The last call and the end of every thread; an end is None where no call of the thread has a start."""

    def __init__(self, calls: Sequence[DraftCall]) -> None:
        self._index: dict[int, int] = {}
        self._end: dict[int, float] = {}
        for number, call in enumerate(calls):
            self._index[call.thread] = number
            if call.end_s is not None:
                self._end[call.thread] = max(call.end_s, self._end.get(call.thread, call.end_s))

    def last_call(self, thread: int) -> int:
        """Number of the thread's last call."""
        return self._index[thread]

    def all_before(self, threads: Collection[int], number: int, start_s: float | None, tolerance_s: float) -> bool:
        """Whether all threads end before call `number`, which starts at `start_s`."""
        latest = self.latest(threads)
        in_time = latest is None or start_s is None or latest <= start_s + tolerance_s
        return in_time and all(self._index[thread] < number for thread in threads)

    def latest(self, threads: Collection[int]) -> float | None:
        """The latest end of the threads, None if none is known."""
        return max((self._end[thread] for thread in threads if thread in self._end), default=None)


def _since(call: DraftCall, released_s: float | None) -> float:
    if call.start_s is None or released_s is None:
        return 0.0
    return max(0.0, call.start_s - released_s)
