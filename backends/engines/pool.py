"""Engines that come and go, and the requests that wait for one."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Final, Self

from .engine import Engine, EngineInfo
from .lease import Lease
from .member import Checks, Member, MemberState
from .routing import Routing, Ticket

_log = logging.getLogger(__name__)
_CHECKS: Final = Checks()


class EnginePool:
    """Engines, watched in the background, and a first-come queue for them. Use it as `async with EnginePool() as pool`.

    An engine takes requests while it is up: from a passed health check until a request loses it or a check fails. One
    that was lost takes none until a check that began later passes; so a dead engine is never picked again, and one
    that was restarted comes back without being told. `kv_share` is the part of an engine's KV that requests may
    reserve; the rest is left to what it keeps cached.
    """

    def __init__(self, *, checks: Checks = _CHECKS, kv_share: float = 0.95) -> None:
        self._checks = checks
        self._kv_share = kv_share
        self._members: dict[str, Member] = {}
        self._routing = Routing()
        self._waiting: dict[int, asyncio.Future[Member]] = {}  # by arrival
        self._arrivals = itertools.count()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.gather(*(self.remove(name) for name in list(self._members)))

    def add(self, engine: Engine) -> None:
        """Let an engine in; it takes requests once it answers. One of that name that drains serves again instead.

        Raises:
            ValueError: an engine of that name is here and does not drain.
        """
        member = self._members.get(engine.name)
        if member is not None and not member.draining:
            raise ValueError(f"engine {engine.name} is in the pool already")
        if member is None:
            member = self._members[engine.name] = Member(engine)
            member.idle.set()
            member.watcher = asyncio.get_running_loop().create_task(self._watch(member))
        member.draining = False
        member.up = False  # what it was before it drained says nothing
        member.wake.set()

    async def drain(self, name: str, deadline_s: float | None = None) -> int:
        """Give the engine no new requests and return once it runs none; it stays, idle, until it is added or removed.

        What still runs after `deadline_s` (None: never) goes on elsewhere. Returns how many did.

        Raises:
            KeyError: no such engine.
        """
        member = self._members[name]
        member.draining = True
        self._routing.shut(name)
        moved = 0
        try:
            async with asyncio.timeout(deadline_s):
                await member.idle.wait()
        except TimeoutError:
            moved = member.revoke()
            await member.idle.wait()
        return moved

    async def remove(self, name: str) -> None:
        """Put the engine out at once: what runs there goes on elsewhere. Drain it first to let that finish.

        Raises:
            KeyError: no such engine.
        """
        member = self._members.pop(name)
        self._routing.leave(name)
        member.revoke()
        if member.watcher is not None:
            member.watcher.cancel()
            await asyncio.wait([member.watcher])
        try:  # a moment in which its requests can tell the engine that they leave
            async with asyncio.timeout(self._checks.retry_s):
                await member.idle.wait()
        except TimeoutError:
            pass
        await member.engine.close()

    def members(self) -> Mapping[str, MemberState]:
        """Where each engine stands."""
        return {name: member.state for name, member in self._members.items()}

    def info(self, name: str) -> EngineInfo | None:
        """What an engine last said of itself; None before it did.

        Raises:
            KeyError: no such engine.
        """
        return self._members[name].info

    def problem(self, name: str) -> str:
        """What was wrong at an engine's latest check; "" where it is well, or only does not answer.

        Raises:
            KeyError: no such engine.
        """
        return self._members[name].problem

    def refresh(self, name: str) -> None:
        """Ask the engine at once what it is: weights were published to it, say.

        Raises:
            KeyError: no such engine.
        """
        self._members[name].wake.set()

    def load(self, name: str) -> tuple[int, int]:
        """Requests on an engine, and KV tokens that they hold."""
        return self._routing.running(name), self._routing.reserved(name)

    def queued(self) -> int:
        """Requests that wait for an engine."""
        return len(self._waiting)

    def ticket(self, execution: str, input_tokens: int, max_new_tokens: int) -> Ticket:
        """Give a request its place in the order of arrival, which it keeps when it moves."""
        return Ticket(next(self._arrivals), execution, input_tokens, max_new_tokens)

    def forget(self, execution: str) -> None:
        """The execution has ended: no engine need be kept for it."""
        self._routing.forget(execution)

    @asynccontextmanager
    async def lease(self, ticket: Ticket) -> AsyncIterator[Lease]:
        """Wait for an engine, for as long as it takes, and hold room on it. Cancelling while waiting costs nothing."""
        member = await self._placed(ticket)
        lease = Lease(member.engine, member.info)
        member.leases[ticket.arrival] = lease
        member.idle.clear()
        try:
            if member.draining or self._members.get(member.engine.name) is not member:
                lease.revoke()  # in between, it was told to leave
            yield lease
        finally:
            del member.leases[ticket.arrival]
            if not member.leases:
                member.idle.set()
            self._settle(member, lease)
            if self._members.get(member.engine.name) is member:
                self._routing.release(member.engine.name, ticket)
            self._place()

    async def _placed(self, ticket: Ticket) -> Member:
        place: asyncio.Future[Member] = asyncio.get_running_loop().create_future()
        self._waiting[ticket.arrival] = place
        self._routing.ask(ticket)
        self._place()
        try:
            return await place
        except asyncio.CancelledError:
            self._waiting.pop(ticket.arrival, None)
            self._routing.withdraw(ticket)
            if place.done() and not place.cancelled():  # cancelled in the moment between being placed and going on
                self._routing.release(place.result().engine.name, ticket)
            self._place()  # it may have held up others
            raise

    def _place(self) -> None:
        for ticket, name in self._routing.place():
            place = self._waiting.pop(ticket.arrival)
            if place.cancelled():  # who waited has not come to withdraw it yet
                self._routing.release(name, ticket)
            else:
                place.set_result(self._members[name])

    def _settle(self, member: Member, lease: Lease) -> None:
        """Learn from how a request on the engine went."""
        if lease.progressed:
            member.strikes = 0
        if lease.lost:
            member.losses += 1
            member.strikes += 1
            self._down(member)
            if member.strikes == 1:  # perhaps it is back already; one that fails again and again is given time
                member.wake.set()

    async def _watch(self, member: Member) -> None:
        while True:
            losses = member.losses
            member.wake.clear()  # before the check: what comes during it asks for another
            info = await member.check()
            if info is None:
                self._down(member)
                self._leave_stalled(member)
            elif losses == member.losses and not member.draining:
                self._up(member, info)
            await member.pause(self._checks)

    def _up(self, member: Member, info: EngineInfo) -> None:
        if member.up and member.info == info:
            return
        name = member.engine.name
        member.up, member.info = True, info
        self._routing.join(name, max(1, int(info.kv_tokens * self._kv_share)), max(1, info.max_running))
        _log.info("engine %s serves %s, version %d", name, info.model, info.version)
        self._place()

    def _leave_stalled(self, member: Member) -> None:
        """Move what has waited too long on an engine that is not well, paused perhaps, where another is."""
        if any(other.state is MemberState.SERVING for other in self._members.values() if other is not member):
            since_s = asyncio.get_running_loop().time() - self._checks.stalled_s
            if moved := member.revoke(since_s):
                _log.warning("%d requests leave engine %s: it gives nothing", moved, member.engine.name)

    def _down(self, member: Member) -> None:
        if self._members.get(member.engine.name) is not member:
            return  # it has left; one of its name may be here
        if member.up:
            _log.warning("engine %s takes no requests until a check passes", member.engine.name)
        member.up = False
        self._routing.shut(member.engine.name)
