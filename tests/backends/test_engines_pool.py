"""The pool: engines come, go and come back; requests wait in order, and leave at any moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from engine_faults import asked, reply, tokens, until
from hypothesis import given, settings
from hypothesis import strategies as st

from gyre.backends.engines.engine import EngineInfo
from gyre.backends.engines.lease import LeaseRevokedError
from gyre.backends.engines.member import Checks, MemberState
from gyre.backends.engines.pool import EnginePool
from gyre.backends.engines.routing import Ticket
from gyre.backends.engines.scripted import Pace, ScriptedEngine

QUICK = Checks(every_s=0.02, retry_s=0.005, retry_most_s=0.02)
ONE_AT_A_TIME = EngineInfo("m", kv_tokens=1 << 20, max_running=1, max_context_tokens=1 << 20, version=0)


@asynccontextmanager
async def pool_of(*engines: ScriptedEngine) -> AsyncIterator[EnginePool]:
    async with EnginePool(checks=QUICK) as pool:
        for engine in engines:
            pool.add(engine)
        yield pool


async def hold(pool: EnginePool, ticket: Ticket, order: list[int], go: asyncio.Event | None = None) -> str:
    async with pool.lease(ticket) as lease:
        order.append(ticket.arrival)
        if go is not None:
            await go.wait()
        return lease.engine.name


def test_a_dead_engine_is_out_and_a_restarted_one_comes_back() -> None:
    async def run() -> None:
        engine = ScriptedEngine("a")
        engine.kill()
        async with pool_of(engine) as pool:
            await asyncio.sleep(0.05)
            assert pool.members() == {"a": MemberState.JOINING}
            engine.restart()
            await until(lambda: pool.members()["a"] is MemberState.SERVING)
            engine.kill()
            await until(lambda: pool.members()["a"] is MemberState.LOST)
            engine.publish(5)
            engine.restart()
            await until(lambda: pool.members()["a"] is MemberState.SERVING)
            info = pool.info("a")
            assert info is not None
            assert info.version == 5  # asked anew: it might be another by now

    asyncio.run(run())


def test_a_loss_counts_at_once_and_only_a_later_check_undoes_it() -> None:
    class SlowCheck(ScriptedEngine):
        checks = 0

        async def healthy(self) -> bool:
            self.checks += 1
            well = await super().healthy()
            if self.checks == 2:  # was well when it was asked, and is dead when that is heard
                await asyncio.sleep(0.05)
            return well

    async def run() -> None:
        engine = SlowCheck("a", pace=Pace(tokens_per_s=100))
        async with pool_of(engine) as pool:
            async with pool.lease(pool.ticket("x", 10, 100)) as lease:
                await until(lambda: engine.checks == 2)
                engine.kill()
                with pytest.raises(Exception, match="dead"):
                    await anext(lease.chunks(asked(100)))
            assert pool.members()["a"] is MemberState.LOST
            await until(lambda: engine.checks == 3)
            assert pool.members()["a"] is MemberState.LOST

    asyncio.run(run())


def test_requests_are_served_in_the_order_of_their_arrival() -> None:
    async def run() -> None:
        order: list[int] = []
        engine = ScriptedEngine("a", info=ONE_AT_A_TIME)
        engine.pause()
        async with pool_of(engine) as pool:
            tickets = [pool.ticket(f"x{at % 3}", 10, 10) for at in range(20)]
            waiting = [asyncio.create_task(hold(pool, ticket, order)) for ticket in reversed(tickets)]
            await until(lambda: pool.queued() == 20)
            engine.resume()
            await asyncio.gather(*waiting)
            assert order == list(range(20))

    asyncio.run(run())


def test_one_that_gives_up_waiting_lets_those_behind_it_go() -> None:
    async def run() -> None:
        info = EngineInfo("m", kv_tokens=1000, max_running=9, max_context_tokens=1 << 20, version=0)
        async with pool_of(ScriptedEngine("a", info=info)) as pool:
            go, order = asyncio.Event(), list[int]()
            first = asyncio.create_task(hold(pool, pool.ticket("x", 500, 0), order, go))
            await until(lambda: order)
            large = asyncio.create_task(hold(pool, pool.ticket("y", 900, 0), order))
            await until(lambda: pool.queued() == 1)
            small = asyncio.create_task(hold(pool, pool.ticket("z", 10, 0), order))
            await asyncio.sleep(0.01)
            assert not small.done()
            large.cancel()
            assert await small == "a"
            go.set()
            await first

    asyncio.run(run())


def test_a_drained_engine_gets_nothing_until_it_is_added_again() -> None:
    async def run() -> None:
        a, b = ScriptedEngine("a"), ScriptedEngine("b")
        async with pool_of(a, b) as pool:
            await until(lambda: set(pool.members().values()) == {MemberState.SERVING})
            order: list[int] = []
            home = await hold(pool, pool.ticket("x", 10, 10), order)
            go = asyncio.Event()
            running = asyncio.create_task(hold(pool, pool.ticket("x", 10, 10), order, go))
            await until(lambda: len(order) == 2)
            draining = asyncio.create_task(pool.drain(home))
            await asyncio.sleep(0.05)
            assert not draining.done()
            assert pool.members()[home] is MemberState.DRAINING
            assert await hold(pool, pool.ticket("x", 10, 10), order) != home
            go.set()
            assert await running == home
            assert await draining == 0
            assert pool.members()[home] is MemberState.DRAINED
            pool.add(a if home == "a" else b)
            await until(lambda: pool.members()[home] is MemberState.SERVING)
            pool.forget("x")
            await pool.remove("b" if home == "a" else "a")
            assert await hold(pool, pool.ticket("x", 10, 10), order) == home

    asyncio.run(run())


def test_an_engine_is_in_a_pool_once() -> None:
    async def run() -> None:
        engine = ScriptedEngine("a")
        async with pool_of(engine) as pool:
            with pytest.raises(ValueError, match="in the pool already"):
                pool.add(engine)

    asyncio.run(run())


def test_a_loss_of_one_that_has_left_is_not_held_against_another_of_its_name() -> None:
    async def run() -> None:
        async with pool_of(ScriptedEngine("a")) as pool:
            async with pool.lease(pool.ticket("x", 10, 10)) as lease:
                await pool.remove("a")
                pool.add(ScriptedEngine("a"))
                await until(lambda: pool.members()["a"] is MemberState.SERVING)
                lease.lost = True
            assert pool.members()["a"] is MemberState.SERVING
            assert await hold(pool, pool.ticket("x", 10, 10), []) == "a"

    asyncio.run(run())


def test_a_revoked_lease_is_heard_between_chunks_and_while_waiting_for_one() -> None:
    async def run(pace: Pace, chunks_first: int) -> None:
        engine = ScriptedEngine("a", pace=pace)
        async with pool_of(engine) as pool, pool.lease(pool.ticket("x", 10, 1000)) as lease:
            got: list[int] = []

            async def read() -> None:
                async for chunk in lease.chunks(asked(1000)):
                    got.extend(chunk.token_ids)

            reading = asyncio.create_task(read())
            await until(lambda: len(got) >= chunks_first)
            await asyncio.sleep(0.01)
            lease.revoke()
            lease.revoke()
            with pytest.raises(LeaseRevokedError):
                await reading
            assert got == [place % 256 for place in range(10, 10 + len(got))]

    asyncio.run(run(Pace(tokens_per_s=0.1), 0))
    asyncio.run(run(Pace(tokens_per_s=2000), 5))


def test_a_cancelled_reader_is_cancelled_and_not_revoked() -> None:
    async def run() -> None:
        engine = ScriptedEngine("a", pace=Pace(tokens_per_s=1))
        async with pool_of(engine) as pool, pool.lease(pool.ticket("x", 10, 10)) as lease:

            async def read() -> None:
                async for _ in lease.chunks(asked(10)):
                    pass

            reading = asyncio.create_task(read())
            await until(lambda: engine.generations)
            reading.cancel()
            await asyncio.wait([reading])
            assert reading.cancelled()
            assert engine.closed == ["r"]

    asyncio.run(run())


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30), st.booleans()), min_size=1, max_size=25), st.data())
def test_cancelling_at_any_moment_loses_no_room(requests: list[tuple[int, int, bool]], data: st.DataObject) -> None:
    """Each request comes after some turns of the loop and is perhaps cancelled after some more."""
    kills = data.draw(st.lists(st.integers(0, 40), max_size=3))

    async def turns(count: int) -> None:
        for _ in range(count):
            await asyncio.sleep(0)

    async def run() -> None:
        a, b = (ScriptedEngine(name, info=ONE_AT_A_TIME) for name in "ab")
        order: list[int] = []
        async with pool_of(a, b) as pool:

            async def use(at: int, comes: int) -> None:
                await turns(comes)
                async with pool.lease(pool.ticket(f"x{at % 4}", 10, 10)) as lease:
                    order.append(at)
                    await turns(at % 5)
                    lease.progressed = True

            async def disturb() -> None:
                for count in kills:
                    await turns(count)
                    await pool.drain("a", 0.0)
                    pool.add(a)

            tasks = [asyncio.create_task(use(at, comes)) for at, (comes, _, _) in enumerate(requests)]
            disturbing = asyncio.create_task(disturb())
            for task, (_, stays, cancelled) in zip(tasks, requests, strict=True):
                if cancelled:
                    await turns(stays)
                    task.cancel()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            await disturbing
            assert not [outcome for outcome in outcomes if isinstance(outcome, Exception)]
            kept = {at for at, (_, _, cancelled) in enumerate(requests) if not cancelled}
            assert kept <= set(order)
            assert pool.queued() == 0
            assert pool.load("a") == pool.load("b") == (0, 0)
            assert len(tokens(await reply(a, asked(3)))) == 3

    asyncio.run(run())
