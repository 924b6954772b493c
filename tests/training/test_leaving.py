"""A cell that leaves waits for nothing: neither for a step nor for a micro-step, and it is given none any more."""

from __future__ import annotations

import asyncio
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

pytest.importorskip("aiohttp", reason="the core's service needs the extra gyre[real]")

from gyre.backends.training.cell import TrainingCell
from gyre.backends.training.elastic_core import ElasticCore, ElasticSettings
from gyre.backends.training.satellite import Satellite
from gyre.backends.training.step_client import StepClient
from gyre.backends.training.step_service import StepService

LONG_S = 50.0  # that a request would wait, longer than the test may take
KEY = "key"


class Unheard:
    def claimed(self, cell: int, step: int, micro_step: int) -> None:
        pass

    def done(self, cell: int, step: int, micro_step: int) -> None:
        pass


def test_what_a_leaving_cell_waits_for_is_answered_at_once(tmp_path: Path) -> None:
    async def run() -> None:
        core = ElasticCore(ElasticSettings(), "layout", tmp_path, Unheard())
        await core.publish(0, np.zeros(4, np.float32))
        service = StepService(core, KEY)
        address = await service.start()
        trainer, listener = (StepClient(address, KEY, 1, timeout_s=2 * LONG_S) for _ in range(2))

        async def told_while(waiting: asyncio.Task[object]) -> object:
            await asyncio.sleep(0.2)  # perhaps it waits by now, perhaps it comes later: both must do
            assert not waiting.done()
            await asyncio.to_thread(listener.leaving)
            return await waiting

        assert await told_while(asyncio.create_task(asyncio.to_thread(trainer.info, LONG_S))) is None
        await asyncio.to_thread(trainer.leave)
        await core.open(0)
        info = await asyncio.to_thread(trainer.info, LONG_S)
        assert info is not None
        claim = asyncio.create_task(asyncio.to_thread(trainer.claim, info.attempt, LONG_S))
        assert await told_while(claim) is None
        await core.offer([(0, 0, b"work")], 1)
        assert await asyncio.to_thread(trainer.info, LONG_S) is None, "it would load weights for nothing"
        assert await asyncio.to_thread(trainer.claim, info.attempt, LONG_S) is None, "others may have it"
        await asyncio.to_thread(trainer.leave)
        claimed = await asyncio.to_thread(trainer.claim, info.attempt, LONG_S)
        assert claimed is not None, "it has joined again"
        assert claimed.payload == b"work"
        trainer.close()
        listener.close()
        await service.stop()

    asyncio.run(asyncio.wait_for(run(), 0.8 * LONG_S))


def test_it_is_heard_though_the_core_has_closed_the_connection_that_served_it_before(tmp_path: Path) -> None:
    """A cell may train for hours between two leaves: longer than a server keeps a connection that is idle."""

    async def run() -> None:
        core = ElasticCore(ElasticSettings(), "layout", tmp_path, Unheard())
        service = StepService(core, KEY)
        address = await service.start()
        client = StepClient(address, KEY, 1)
        await asyncio.to_thread(client.leaving)
        await service.stop()
        service = StepService(core, KEY)
        await service.start(port=int(address.rpartition(":")[2]))
        await asyncio.to_thread(client.leaving)
        assert await core.info(1, LONG_S) is None
        client.close()
        await service.stop()

    asyncio.run(asyncio.wait_for(run(), 0.8 * LONG_S))


def test_a_leave_that_comes_while_it_greets_the_core_is_not_waited_for() -> None:
    """The core hears that the cell is leaving, and then the greeting, a leave too, which ends that."""

    class Core:
        def __init__(self) -> None:
            self.satellite: Satellite
            self.heard: list[str] = []

        def leave(self) -> None:
            if not self.heard:
                self.satellite.leave()
            self.heard.append("leave")

        def info(self, wait_s: float) -> None:
            self.heard.append("info")
            self.satellite.leave()

    core, cell = Core(), Mock(spec=TrainingCell)
    core.satellite = Satellite(cell, core)  # type: ignore[arg-type]
    core.satellite.run()
    assert core.heard == ["leave", "leave"]
    cell.release.assert_called_once_with()
