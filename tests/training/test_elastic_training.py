"""A step over real processes that come late, die, freeze and send half, against the same step in one process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("megatron.core", reason="training stands on megatron-core")
import aiohttp
import numpy as np
import torch
from model_kit import make_folder
from training_kit import (
    KEY,
    SETTINGS,
    Heard,
    forking,
    items,
    killed_at_the_end,
    new_trainer,
    offer_all,
    offer_of,
    satellite,
    train_alone,
    until,
)

from gyre.backends.models.world import world_of_one
from gyre.backends.run.ports import Restored
from gyre.backends.training.cell import LocalCell
from gyre.backends.training.elastic_core import ElasticSettings
from gyre.backends.training.elastic_step import GoneError
from gyre.backends.training.elastic_training import ElasticTraining
from gyre.backends.training.figures import Figures
from gyre.backends.training.satellite import Satellite
from gyre.backends.training.snapshot import SharedSnapshots
from gyre.backends.training.step_client import StepClient
from gyre.backends.training.step_info import digest_of
from gyre.backends.training.trainer import Trainer

GROUPS = range(3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("elastic") / "model", "qwen3_tied")


@pytest.fixture(scope="module", autouse=True)
def one_world() -> Iterator[None]:
    with world_of_one():
        yield


def alone(folder: Path) -> Trainer:
    """One process makes the update."""
    trainer = new_trainer(folder)
    train_alone(trainer, GROUPS)
    return trainer


def test_nothing_is_lost_to_cells_that_join_late_die_freeze_or_send_half(folder: Path, tmp_path: Path) -> None:
    """The exact sum: bit-equal to one process, gradients spilled to files; every micro-step is counted once."""
    context = forking()
    heard = Heard()

    async def run() -> None:
        cell = LocalCell(new_trainer(folder, SETTINGS))
        settings = ElasticSettings(lease_s=3.0, transfer_timeout_s=2.0, sum="exact", exact_memory_bytes=0)
        training = ElasticTraining(cell, tmp_path, items, key=KEY, elastic=settings)
        await training.start(heard)
        processes = [
            context.Process(target=satellite, args=(folder, training.address, cell, fault))
            for cell, fault in ((1, ""), (2, "half"), (3, "stop"), (4, "kill"))
        ]
        with killed_at_the_end(processes):
            await training.open(0)
            for process in processes[1:]:
                process.start()
            number = await offer_all(training, GROUPS)
            await until(lambda: all(len(heard.claims(cell)) >= 2 for cell in (2, 3, 4)))
            processes[0].start()  # late
            await until(lambda: len(heard.done(1)) >= 2)
            training.train()
            await until(lambda: len(heard.done()) == number)
            assert sorted(heard.done()) == list(range(number))
            assert len(heard.done(1)) + len(heard.done(0)) == number - 3, "each of the others returned one"
            await training.close(0)
            await training.apply(0)
            await training.stop()
        assert torch.equal(torch.from_numpy(cell.values()), alone(folder).weights.values)

    asyncio.run(run())


def in_process(training: ElasticTraining, cell: LocalCell, number: int, source: SharedSnapshots | None) -> Satellite:
    """A satellite in a thread of this process."""
    client = StepClient(training.address, KEY, number)
    return Satellite(cell, client, snapshots=source, wait_s=0.2, retry_s=0.05)


def test_a_step_begun_again_is_the_step(folder: Path, tmp_path: Path) -> None:
    """The core's trainer is lost in mid-step and the step opened anew; weights go by shared memory, the sum is running:
    within 1e-6 of one process. Then a second step, on the weights of the first."""
    heard, shared = Heard(), SharedSnapshots(tmp_path)

    async def run() -> None:
        cell = LocalCell(new_trainer(folder, SETTINGS))
        other = new_trainer(folder, SETTINGS)
        other.weights.load(other.weights.values * 0.5)
        training = ElasticTraining(cell, tmp_path, items, key=KEY, shared=shared)
        assert await training.start(heard) == Restored(0)
        worker = in_process(training, LocalCell(other), 1, shared)
        thread = asyncio.create_task(asyncio.to_thread(worker.run))
        await training.open(0)
        await training.offer(offer_of(0, 0))
        await until(lambda: len(heard.done()) >= 2)
        await training.open(0)
        heard.events.clear()
        number = await offer_all(training, GROUPS)
        await until(lambda: len(set(heard.done())) == number)
        await training.close(0)
        said = dict(await training.apply(0))
        expected = alone(folder)
        difference = (torch.from_numpy(cell.values()) - expected.weights.values).abs().max()
        assert difference <= 1e-6, "an update of 1e-3 / 3 at most"
        assert await training.checkpoint(1, last=False)
        await training.open(1)
        await training.offer(offer_of(0, 0, step=1))
        await until(lambda: {e.step for e in heard.events} >= {0, 1})
        worker.leave()
        await thread
        assert worker.committed > 0
        assert {"loss", "kl", "clip_fraction", "grad_norm", "logprob_difference_max_lag0"} <= said.keys()
        await training.stop()
        again = ElasticTraining(LocalCell(new_trainer(folder)), tmp_path, items, key=KEY)
        restored = await again.start(heard)
        assert (restored.version, restored.groups, dict(restored.metrics)) == (1, tuple(GROUPS), said)
        await again.stop()

    asyncio.run(run())


def test_a_message_that_is_not_whole_changes_nothing(folder: Path, tmp_path: Path) -> None:
    """Wrong key, length, digest or figures, an attempt that is over: refused by name; the micro-step waits on."""
    heard = Heard()

    async def run() -> None:
        cell = LocalCell(new_trainer(folder, SETTINGS))
        training = ElasticTraining(cell, tmp_path, items, key=KEY)
        await training.start(heard)
        await training.open(0)
        await training.offer(offer_of(0, 0))
        client = StepClient(training.address, KEY, 1)
        info = await asyncio.to_thread(client.info, 1.0)
        claim = await asyncio.to_thread(client.claim, info.attempt, 1.0)
        good = np.zeros(cell.size, np.float32)
        url = f"{training.address}/attempts/{info.attempt}/gradients/{claim.number}?cell=1"
        headers = {
            "Authorization": f"Bearer {KEY}",
            "X-Gyre-Digest": digest_of(good),
            "X-Gyre-Figures": Figures().to_json(),
        }
        bad = [
            (401, good, {"Authorization": "Bearer other"}),
            (400, good[1:], {}),
            (400, good + 1, {}),
            (400, good, {"X-Gyre-Figures": "[]"}),
        ]
        async with aiohttp.ClientSession() as session:
            for status, body, change in bad:
                async with session.put(url, data=body.tobytes(), headers={**headers, **change}) as response:
                    assert response.status == status, await response.text()
        with pytest.raises(GoneError):
            await asyncio.to_thread(client.send, "before", claim.number, good, Figures())
        assert heard.done() == []
        assert await asyncio.to_thread(client.send, info.attempt, claim.number, good, Figures())
        assert not await asyncio.to_thread(client.send, info.attempt, claim.number, good, Figures())
        assert heard.done() == [claim.number]
        client.close()
        await training.stop()

    asyncio.run(run())
