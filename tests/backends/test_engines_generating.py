"""One unbroken reply: whatever befalls the engines, tokens, log-probs and versions are as if nothing had."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing

import pytest
from engine_faults import asked, logprobs, tokens, until, versions
from hypothesis import given, settings
from hypothesis import strategies as st

from gyre.backends.engines.continuation import Continuation
from gyre.backends.engines.engine import Chunk, EngineInfo, EngineLostError, Generation, RequestRefusedError
from gyre.backends.engines.generating import EnginesFailingError, Move, Persistence, generate
from gyre.backends.engines.member import Checks, MemberState
from gyre.backends.engines.pool import EnginePool
from gyre.backends.engines.scripted import Pace, ScriptedEngine, place_logprob
from gyre.trajectory.call import Finish

QUICK = Checks(every_s=0.02, retry_s=0.005, retry_most_s=0.02)
EAGER = Persistence(pause_s=0.001, pause_most_s=0.01)
PACE = Pace(tokens_per_s=1000, chunk_tokens=3)
SLOW = Pace(tokens_per_s=100, chunk_tokens=3)  # nothing ends before what is to befall it


async def unbroken(pool: EnginePool, generation: Generation, moves: list[Move], **settings: object) -> list[Chunk]:
    stream = generate(pool, "x", generation, on_move=moves.append, persistence=EAGER, **settings)  # type: ignore[arg-type]
    async with aclosing(stream) as chunks:
        return [chunk async for chunk in chunks]


def check(chunks: list[Chunk], count: int, finish: Finish = Finish.LENGTH) -> None:
    """The reply is the one that an undisturbed engine gives to `asked(count)`."""
    assert tokens(chunks) == [place % 256 for place in range(10, 10 + count)]
    assert logprobs(chunks) == [place_logprob(place) for place in range(10, 10 + count)]
    assert [chunk.finish for chunk in chunks] == [None] * (len(chunks) - 1) + [finish]


Fault = Callable[[ScriptedEngine, ScriptedEngine, EnginePool], Awaitable[None]]


async def kill_before_any(busy: ScriptedEngine, other: ScriptedEngine, pool: EnginePool) -> None:
    await until(lambda: busy.generations or other.generations)
    (busy if busy.generations else other).kill()


async def kill_in_mid_reply(busy: ScriptedEngine, other: ScriptedEngine, pool: EnginePool) -> None:
    await kill_after(busy, other, 0.05)


async def kill_after(busy: ScriptedEngine, other: ScriptedEngine, seconds: float) -> None:
    await until(lambda: busy.generations or other.generations)
    await asyncio.sleep(seconds)
    (busy if busy.generations else other).kill()


async def pause_with_abort(busy: ScriptedEngine, other: ScriptedEngine, pool: EnginePool) -> None:
    await until(lambda: busy.generations or other.generations)
    await asyncio.sleep(0.03)
    (busy if busy.generations else other).pause(abort=True)


async def all_gone_for_a_while(busy: ScriptedEngine, other: ScriptedEngine, pool: EnginePool) -> None:
    await until(lambda: busy.generations or other.generations)
    await asyncio.sleep(0.03)
    busy.kill()
    other.kill()
    await until(lambda: set(pool.members().values()) == {MemberState.LOST})
    await asyncio.sleep(0.1)
    assert pool.queued() == 1
    other.restart()


async def drained_past_its_deadline(busy: ScriptedEngine, other: ScriptedEngine, pool: EnginePool) -> None:
    await until(lambda: busy.generations or other.generations)
    await asyncio.sleep(0.03)
    engine = busy if busy.generations else other
    assert await pool.drain(engine.name, deadline_s=0.01) == 1
    assert pool.members()[engine.name] is MemberState.DRAINED
    await until(lambda: engine.closed)


async def removed(busy: ScriptedEngine, other: ScriptedEngine, pool: EnginePool) -> None:
    await until(lambda: busy.generations or other.generations)
    await asyncio.sleep(0.03)
    await pool.remove((busy if busy.generations else other).name)


@pytest.mark.parametrize(
    "fault",
    [
        kill_before_any,
        kill_in_mid_reply,
        pause_with_abort,
        all_gone_for_a_while,
        drained_past_its_deadline,
        removed,
    ],
)
def test_a_reply_survives(fault: Fault) -> None:
    async def run() -> None:
        engines = [ScriptedEngine(name, pace=SLOW) for name in "ab"]
        moves: list[Move] = []
        async with EnginePool(checks=QUICK) as pool:
            for engine in engines:
                pool.add(engine)
            running = asyncio.create_task(unbroken(pool, asked(200), moves))
            await fault(engines[0], engines[1], pool)
            for engine in engines:
                engine.pace = PACE
            check(await running, 200)
            assert {move.tokens for move in moves} == {moves[0].tokens}  # two where it first tried a dead one
            [first, second] = sorted([*engines[0].generations, *engines[1].generations], key=lambda g: g.request_id)
            assert second.continued_tokens == moves[0].tokens == len(second.input_ids) - 10
            assert second.sampling.max_new_tokens == 200 - moves[0].tokens
            assert first.request_id != second.request_id

    asyncio.run(run())


def test_versions_are_those_of_the_weights_that_sampled() -> None:
    async def run() -> None:
        a = ScriptedEngine("a", pace=SLOW, info=EngineInfo("m", 1 << 20, 8, 1 << 20, version=4))
        b = ScriptedEngine("b", pace=PACE, info=EngineInfo("m", 1 << 20, 8, 1 << 20, version=7))
        moves: list[Move] = []
        async with EnginePool(checks=QUICK) as pool:
            pool.add(a)
            running = asyncio.create_task(unbroken(pool, asked(150), moves))
            await until(lambda: a.generations)
            await asyncio.sleep(0.05)
            pool.add(b)
            a.kill()
            said = versions(await running)
            assert said == [4] * moves[0].tokens + [7] * (150 - moves[0].tokens)

    asyncio.run(run())


def test_the_only_engine_comes_back_and_the_reply_with_it() -> None:
    async def run() -> None:
        engine, moves = ScriptedEngine("a", pace=SLOW), []
        async with EnginePool(checks=QUICK) as pool:
            pool.add(engine)
            running = asyncio.create_task(unbroken(pool, asked(120), moves))
            for _ in range(3):
                count = len(engine.generations)
                await until(lambda count=count: len(engine.generations) > count)
                await asyncio.sleep(0.02)
                engine.kill()
                await asyncio.sleep(0.02)
                engine.restart()
            engine.pace = PACE
            check(await running, 120)
            assert len(moves) == 3

    asyncio.run(run())


def test_a_pause_that_keeps_requests_moves_nothing() -> None:
    async def run() -> None:
        engine, moves = ScriptedEngine("a", pace=PACE), []
        async with EnginePool(checks=QUICK) as pool:
            pool.add(engine)
            running = asyncio.create_task(unbroken(pool, asked(100), moves))
            await until(lambda: engine.generations)
            engine.pause()
            await until(lambda: pool.members()["a"] is MemberState.LOST)
            engine.publish(3)
            engine.resume()
            chunks = await running
            check(chunks, 100)
            assert not moves
            assert set(versions(chunks)) <= {0, 3}

    asyncio.run(run())


@settings(max_examples=15)
@given(st.lists(st.sampled_from(["kill", "abort", "drain", "remove", "publish"]), max_size=5), st.integers(1, 9))
def test_any_series_of_faults_leaves_the_reply_as_it_is(faults: list[str], chunk_tokens: int) -> None:
    async def run() -> None:
        made = 0

        def new() -> ScriptedEngine:
            nonlocal made
            made += 1
            return ScriptedEngine(f"e{made}", pace=Pace(4000, chunk_tokens))

        moves: list[Move] = []
        async with EnginePool(checks=QUICK) as pool:
            engine = new()
            pool.add(engine)
            running = asyncio.create_task(unbroken(pool, asked(150), moves))
            for fault in faults:
                await asyncio.sleep(0.008)
                after = new()
                pool.add(after)
                if fault == "kill":
                    engine.kill()
                elif fault == "abort":
                    engine.pause(abort=True)
                elif fault == "drain":
                    await pool.drain(engine.name, deadline_s=0.0)
                elif fault == "remove":
                    await pool.remove(engine.name)
                else:
                    engine.publish(made)
                    continue
                engine = after
            check(await running, 150)

    asyncio.run(run())


def test_a_refusal_is_not_tried_again() -> None:
    async def run() -> None:
        engines = [ScriptedEngine(name, refuse=lambda generation: "no such grammar") for name in "ab"]
        moves: list[Move] = []
        async with EnginePool(checks=QUICK) as pool:
            for engine in engines:
                pool.add(engine)
            with pytest.raises(RequestRefusedError, match="no such grammar"):
                await unbroken(pool, asked(), moves)
            assert not moves
            assert pool.load("a") == pool.load("b") == (0, 0)

    asyncio.run(run())


class Failing(ScriptedEngine):
    """Healthy, and lost with every request."""

    tries = 0

    async def generate(self, generation: Generation):  # type: ignore[no-untyped-def,override]
        self.tries += 1
        raise EngineLostError("out of memory")
        yield


def test_a_request_that_seems_to_kill_engines_is_given_up() -> None:
    async def run() -> None:
        engine, moves = Failing("a"), []
        async with EnginePool(checks=QUICK) as pool:
            pool.add(engine)
            with pytest.raises(EnginesFailingError, match=r"6 engines in a row.*out of memory"):
                await unbroken(pool, asked(), moves)
            assert engine.tries == len(moves) == 6

    asyncio.run(run())


def test_pauses_grow_to_a_bound() -> None:
    persistence = Persistence(pause_s=0.5, pause_most_s=3.0)
    assert [persistence.pause(losses) for losses in (0, 1, 2, 3, 4, 5, 1000)] == [0.0, 0.0, 0.5, 1.0, 2.0, 3.0, 3.0]


def test_closing_the_reply_aborts_it_and_frees_its_room() -> None:
    async def run() -> None:
        engine = ScriptedEngine("a", pace=PACE)
        async with EnginePool(checks=QUICK) as pool:
            pool.add(engine)
            async with aclosing(generate(pool, "x", asked(10_000))) as chunks:
                await anext(chunks)
                assert pool.load("a") == (1, 10 + 4096)
            assert engine.closed == ["r.0"]
            assert pool.load("a") == (0, 0)

            waiting = asyncio.create_task(unbroken(pool, asked(10_000), []))
            await until(lambda: len(engine.generations) == 2)
            waiting.cancel()
            await asyncio.wait([waiting])
            assert waiting.cancelled()
            assert engine.closed == ["r.0", "r.0"]
            assert pool.load("a") == (0, 0)

    asyncio.run(run())


def test_a_reply_that_fills_the_context_ends_there() -> None:
    async def run() -> None:
        info = EngineInfo("m", 1 << 20, 8, max_context_tokens=50, version=0)
        async with EnginePool(checks=QUICK) as pool:
            pool.add(ScriptedEngine("a", info=info))
            check(await unbroken(pool, asked(1000), []), 40)
            with pytest.raises(RequestRefusedError, match="leaves no room in a context of 50 tokens"):
                await unbroken(pool, asked(10, inputs=50), [])

    asyncio.run(run())


def test_a_constrained_reply_comes_whole_and_begins_anew() -> None:
    async def run() -> None:
        engines = [ScriptedEngine(name, pace=SLOW) for name in "ab"]
        moves: list[Move] = []
        async with EnginePool(checks=QUICK) as pool:
            for engine in engines:
                pool.add(engine)
            running = asyncio.create_task(unbroken(pool, asked(100, constraint={"regex": ".*"}), moves))
            await kill_after(engines[0], engines[1], 0.1)
            for engine in engines:
                engine.pace = PACE
            [chunk] = await running
            check([chunk], 100)
            assert moves[0].tokens > 0
            assert all(g.continued_tokens == 0 for engine in engines for g in engine.generations)

    asyncio.run(run())


def test_a_reply_whose_end_was_not_told_is_not_asked_for_again() -> None:
    class EndsUntold(ScriptedEngine):
        async def generate(self, generation: Generation):  # type: ignore[no-untyped-def,override]
            self.generations.append(generation)
            yield Chunk((1, 2), (-1.0, -1.0), (0, 0))
            raise EngineLostError("cut")

    async def run(generation: Generation) -> tuple[list[Chunk], int]:
        engine = EndsUntold("a")
        async with EnginePool(checks=QUICK) as pool:
            pool.add(engine)
            return await unbroken(pool, generation, []), len(engine.generations)

    chunks, tries = asyncio.run(run(asked(2)))
    assert (tokens(chunks), chunks[-1].finish, tries) == ([1, 2], Finish.LENGTH, 1)
    chunks, tries = asyncio.run(run(asked(9, stop_token_ids=(2,))))
    assert (tokens(chunks), chunks[-1].finish, tries) == ([1, 2], Finish.STOP, 1)
    chunks, tries = asyncio.run(run(asked(6, stop_token_ids=(2,), min_new_tokens=4)))
    assert (tokens(chunks), chunks[-1].finish, tries) == ([1, 2] * 3, Finish.STOP, 3)


def letters(ids: Sequence[int]) -> str:
    """A decoder in which a token is one byte."""
    return bytes(ids).decode(errors="replace")


@given(st.text("abé", max_size=14), st.text("abé", min_size=1, max_size=4), st.data())
def test_a_stop_string_is_found_wherever_seams_and_chunks_fall(text: str, stop: str, data: st.DataObject) -> None:
    """As an engine that sees the whole reply would find it: it ends at the first token that completes the string."""
    reply = list(text.encode())
    ends = [end for end in range(1, len(reply) + 1) if stop in letters(reply[:end])]
    whole = reply[: ends[0]] if ends else reply
    progress = Continuation(asked(100, stop=(stop,)), letters)
    at, finish = 0, None
    while at < len(reply) and finish is None:
        progress.rest(0, 100)
        # What an engine does from here: it looks for the string in its own part alone.
        part = data.draw(st.integers(at + 1, len(reply)))
        found = [end for end in range(at + 1, part + 1) if stop in letters(reply[at:end])]
        part = found[0] if found else part
        while at < part and finish is None:
            size = data.draw(st.integers(1, part - at))
            end = Finish.STOP if found and at + size == part else None
            taken = progress.take(Chunk(tuple(reply[at : at + size]), (0.0,) * size, (0,) * size, end))
            at, finish = at + size, taken.finish
    assert progress.token_ids == whole
    assert (finish is Finish.STOP) == bool(ends)


def test_versions_put_right_at_the_end_are_those_of_the_whole_reply() -> None:
    progress = Continuation(asked(100))
    progress.rest(0, 100)
    progress.take(Chunk((1, 2), (0.0, 0.0), (3, 3)))
    progress.rest(1, 98)
    progress.take(Chunk((3,), (0.0,), (4,)))
    last = progress.take(Chunk((4,), (0.0,), (5,), Finish.STOP, exact_versions=(5, 5)))
    assert last.exact_versions == (3, 3, 5, 5)
