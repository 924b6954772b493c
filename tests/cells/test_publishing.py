"""Weights reach every engine that can take them, and no other serves; against scripted servers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="publishing speaks HTTP to engines by aiohttp")

from steered_sglang import CHANGES, SteeredSglang

from gyre.backends.publishing.control import EngineControl, PausePolicy
from gyre.backends.publishing.giving import GiveSettings, NotGivenError, give
from gyre.backends.publishing.weights import on_disk

WEIGHTS = on_disk(7, Path("weights-of-version-7"))


def given(engine: SteeredSglang, settings: GiveSettings | None = None, **control: Any) -> None:
    """Give the engine version 7; raise what `give` raises."""

    async def run() -> None:
        async with engine:
            steer = EngineControl(engine.url, **control)
            try:
                await give(steer, WEIGHTS, settings or GiveSettings(within_s=20.0))
            finally:
                await steer.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("policy", "mode"),
    [(PausePolicy.RETRACT, "retract"), (PausePolicy.ABORT, "abort"), (PausePolicy.KEEP, "in_place")],
)
def test_weights_change_while_the_engine_is_paused_and_the_mode_is_always_said(policy: PausePolicy, mode: str) -> None:
    """Nothing in flight is aborted unless asked: miles#2372, miles#2589. KV of old weights goes: verl#6373."""
    engine = SteeredSglang()
    given(engine, GiveSettings(policy, within_s=20.0))
    assert engine.version == "7"
    assert (engine.paused, engine.session, engine.changed_unpaused) == (False, False, False)
    sent = dict(engine.calls)
    assert sent["/pause_generation"] == {"mode": mode}
    assert sent[CHANGES]["flush_cache"] is (policy is not PausePolicy.KEEP)
    assert sent[CHANGES]["abort_all_requests"] is False


@pytest.mark.parametrize("fault", ["refuses", "loses"])
def test_a_wrong_answer_is_settled_by_asking_for_the_version(fault: str) -> None:
    """Relax#211: the weights did change, whatever the answer was; they are not given twice."""
    engine = SteeredSglang(changes_all_the_same=True, **{fault: {CHANGES: 1}})
    given(engine)
    assert engine.version == "7"
    assert engine.asked.count(CHANGES) == 1
    assert not engine.paused


def test_a_refusal_that_is_true_is_tried_once_more() -> None:
    engine = SteeredSglang(refuses={CHANGES: 1})
    given(engine)
    assert (engine.version, engine.asked.count(CHANGES), engine.paused) == ("7", 2, False)


def test_an_engine_that_does_not_take_weights_stays_paused() -> None:
    """Relax#211: an uncertain engine must not serve."""
    engine = SteeredSglang(refuses={CHANGES: 9})
    with pytest.raises(NotGivenError, match="answered 400"):
        given(engine)
    assert engine.paused


def test_a_session_that_somebody_left_open_is_closed_first() -> None:
    engine = SteeredSglang(refuses={"/begin_weight_update": 1})
    given(engine)
    assert (engine.version, engine.session) == ("7", False)


def test_a_number_that_the_engine_has_already_proves_nothing() -> None:
    """After a restart the trainer may make another version 7."""
    engine = SteeredSglang(version="7")
    given(engine)
    assert engine.asked.count(CHANGES) == 1
    assert engine.version == "7"


@pytest.mark.parametrize("endpoint", ["/pause_generation", "/begin_weight_update", CHANGES, "/model_info"])
def test_an_engine_that_hangs_is_given_up(endpoint: str) -> None:
    """No hang without a time-out: AReaL#1439, trl#6872."""
    with pytest.raises(NotGivenError, match=r"no answer|not given in"):
        given(SteeredSglang(hangs={endpoint}), GiveSettings(within_s=1.0), call_s=0.3)


def test_a_dead_engine_is_one_clear_error() -> None:
    async def run() -> None:
        control = EngineControl("http://127.0.0.1:9", connect_s=1.0)
        try:
            await give(control, WEIGHTS, GiveSettings(within_s=5.0))
        finally:
            await control.close()

    with pytest.raises(NotGivenError, match="cannot be reached"):
        asyncio.run(run())


def test_engines_are_given_weights_at_once_and_a_dead_one_holds_up_nobody() -> None:
    """Through the publisher and a pool: the hanging engine is out, the other two serve the new version."""
    pytest.importorskip("orjson", reason="the pool's engines speak JSON by orjson")
    from gyre.backends.engines.pool import EnginePool
    from gyre.backends.engines.sglang import SGLangEngine
    from gyre.backends.publishing.publisher import Publisher

    async def run() -> None:
        engines = [SteeredSglang(), SteeredSglang(hangs={CHANGES}), SteeredSglang()]
        pool = EnginePool()
        first = on_disk(0, Path("weights-of-version-0"))
        publisher = Publisher(pool, first, GiveSettings(within_s=1.0))
        controls: list[EngineControl] = []
        close: list[Callable[[], Awaitable[None]]] = []
        try:
            for engine in engines:
                await engine.__aenter__()
                close.append(engine.__aexit__)
                controls.append(EngineControl(engine.url))
                await publisher.admit(SGLangEngine(engine.url), controls[-1], holds=first)
            published = await publisher.publish(WEIGHTS)
            assert set(published.given) == {engines[0].url, engines[2].url}
            assert set(published.failed) == {engines[1].url}
            assert publisher.admitted == set(published.given)
            assert [engine.version for engine in engines] == ["7", "0", "7"]
        finally:
            for name in list(pool.members()):
                await pool.remove(name)
            for control in controls:
                await control.close()
            for end in close:
                await end()

    asyncio.run(run())
