"""Which engine takes which request. Pure: no clock, no sockets; it is told what happens and says who goes where."""

from __future__ import annotations

import bisect
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

from gyre.splitmix import hashed

# What one request may reserve for output not yet sampled. Harnesses ask for the most their model allows and use
# little of it; SGLang's own scheduler clips its estimate at the same figure.
_OUTPUT_RESERVE_TOKENS = 4096


@dataclass(frozen=True, slots=True)
class Ticket:
    """A request that wants an engine. `arrival` is unique; the lowest is served first."""

    arrival: int
    execution: str
    input_tokens: int
    max_new_tokens: int

    def reserve(self, budget: int) -> int:
        """KV tokens to hold for it on an engine with this budget: never more than the whole engine, so that every
        request fits somewhere, alone if need be."""
        return min(self.input_tokens + min(self.max_new_tokens, _OUTPUT_RESERVE_TOKENS), budget)


@dataclass(slots=True)
class _Desk:
    """An engine, as the routing sees it."""

    budget: int
    max_running: int
    open: bool = True
    reserved: int = 0
    running: dict[int, int] = field(default_factory=dict)  # KV tokens held, by arrival

    def has_room(self, ticket: Ticket) -> bool:
        return (
            self.open
            and len(self.running) < self.max_running
            and self.reserved + ticket.reserve(self.budget) <= self.budget
        )


class Routing:
    """Sticky, else least loaded, within a budget of KV tokens; a first-come queue in front.

    An execution goes back to the engine that served it last (its KV is there) while that has room, else to the engine
    with the least reserved relative to its budget; equals are told apart by a hash of the execution, the same in
    every run. Requests are placed strictly by arrival: one that fits nowhere holds up those behind it, so that large
    ones do not starve.
    """

    def __init__(self, remembered_executions: int = 100_000) -> None:
        self._desks: dict[str, _Desk] = {}
        self._queue: list[Ticket] = []  # by arrival
        self._homes: OrderedDict[str, str] = OrderedDict()  # engine by execution, the least recently used first
        self._remembered = remembered_executions

    def join(self, engine: str, budget: int, max_running: int) -> None:
        """Add an engine, open; or change an engine's limits, where what it runs may now be more than they allow.

        Raises:
            ValueError: a limit is below 1.
        """
        if budget < 1 or max_running < 1:
            raise ValueError(f"engine {engine}: a budget of {budget} KV tokens and {max_running} requests runs nothing")
        desk = self._desks.setdefault(engine, _Desk(budget, max_running))
        desk.budget, desk.max_running, desk.open = budget, max_running, True

    def open(self, engine: str) -> None:
        """Give the engine requests."""
        self._desks[engine].open = True

    def shut(self, engine: str) -> None:
        """Give the engine no more requests; those that run there stay. One that is unknown is shut already."""
        if engine in self._desks:
            self._desks[engine].open = False

    def leave(self, engine: str) -> None:
        """Forget the engine and what was reserved there."""
        self._desks.pop(engine, None)

    def ask(self, ticket: Ticket) -> None:
        """Queue a request by its arrival: one that comes back goes where it stood."""
        bisect.insort(self._queue, ticket, key=lambda other: other.arrival)

    def withdraw(self, ticket: Ticket) -> None:
        """Take a request out of the queue. One that is not there is let be."""
        at = bisect.bisect_left(self._queue, ticket.arrival, key=lambda other: other.arrival)
        if at < len(self._queue) and self._queue[at].arrival == ticket.arrival:
            del self._queue[at]

    def release(self, engine: str, ticket: Ticket) -> None:
        """The request no longer runs on the engine. Where it does not, nothing happens."""
        desk = self._desks.get(engine)
        if desk is not None:
            desk.reserved -= desk.running.pop(ticket.arrival, 0)

    def forget(self, execution: str) -> None:
        """The execution has ended."""
        self._homes.pop(execution, None)

    def place(self) -> Iterator[tuple[Ticket, str]]:
        """Place as many as have room, by arrival; yield each with its engine, where it is now running."""
        while self._queue:
            engine = self._choose(self._queue[0])
            if engine is None:
                return
            ticket = self._queue.pop(0)
            desk = self._desks[engine]
            desk.running[ticket.arrival] = ticket.reserve(desk.budget)
            desk.reserved += desk.running[ticket.arrival]
            self._remember(ticket.execution, engine)
            yield ticket, engine

    def queued(self) -> int:
        """Requests that wait."""
        return len(self._queue)

    def running(self, engine: str) -> int:
        """Requests on the engine."""
        return len(self._desks[engine].running) if engine in self._desks else 0

    def reserved(self, engine: str) -> int:
        """KV tokens that are reserved on the engine."""
        return self._desks[engine].reserved if engine in self._desks else 0

    def _choose(self, ticket: Ticket) -> str | None:
        home = self._homes.get(ticket.execution)
        if home is not None and home in self._desks and self._desks[home].has_room(ticket):
            return home
        loads = {name: desk.reserved / desk.budget for name, desk in self._desks.items() if desk.has_room(ticket)}
        if not loads:
            return None
        least = min(loads.values())
        equals = [name for name, load in loads.items() if load == least]
        return equals[0] if len(equals) == 1 else max(equals, key=lambda name: _preference(ticket.execution, name))

    def _remember(self, execution: str, engine: str) -> None:
        self._homes[execution] = engine
        self._homes.move_to_end(execution)
        if len(self._homes) > self._remembered:
            self._homes.popitem(last=False)


def _preference(execution: str, engine: str) -> int:
    """Rendezvous hashing: an engine that joins or leaves changes no other's order."""
    return hashed(f"{execution}\0{engine}")
