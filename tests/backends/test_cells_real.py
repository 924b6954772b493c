"""Two real cells train in one step while a reply waits; a trainer and an engine are killed; weights are published."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sglang", reason="a real engine needs SGLang")
pytest.importorskip("megatron.core", reason="a real trainer needs megatron-core")
torch = pytest.importorskip("torch", reason="weights are handed over as tensors")
transformers = pytest.importorskip("transformers", reason="log-probs are computed again with transformers")
from cells_site import TRAINER, Site, items_of, offer_of, site, until  # noqa: E402
from engine_faults import asked, tokens, versions  # noqa: E402
from logprob_check import differences  # noqa: E402

from gyre.backends.cells.server import LocalServer  # noqa: E402
from gyre.backends.engines.engine import Chunk, Generation, Sampling  # noqa: E402
from gyre.backends.engines.launching import Server  # noqa: E402
from gyre.backends.models.config_file import read_architecture  # noqa: E402
from gyre.backends.models.layout import Layout  # noqa: E402
from gyre.backends.models.loading import load  # noqa: E402
from gyre.backends.models.model import build  # noqa: E402
from gyre.backends.publishing.control import PausePolicy  # noqa: E402
from gyre.backends.publishing.from_tensors import FromTensors  # noqa: E402
from gyre.backends.publishing.giving import GiveSettings  # noqa: E402
from gyre.backends.publishing.weights import Weights, on_disk  # noqa: E402
from gyre.backends.training.cell import LocalCell  # noqa: E402
from gyre.backends.training.group_micro_steps import group_work  # noqa: E402
from gyre.backends.training.trainer import Trainer  # noqa: E402
from gyre.cluster import CellRole, CellState  # noqa: E402
from gyre.events import CellFailed, CellJoined  # noqa: E402
from gyre.trajectory.advantages import Baseline  # noqa: E402
from gyre.trajectory.call import Finish  # noqa: E402
from gyre.trajectory.selection import Selection  # noqa: E402

NEW = 400
Models = dict[int, Any]


def model_of(folder: Path) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def whole(chunks: list[Chunk]) -> None:
    assert len(tokens(chunks)) == NEW
    assert [chunk.finish for chunk in chunks if chunk.finish is not None] == [Finish.LENGTH]
    assert versions(chunks) == sorted(versions(chunks))


async def sampled(at: Site, models: Models) -> None:
    """What is trained on: replies of both engines."""
    asks = [asked(32 + inputs, request_id=f"first {inputs}", inputs=inputs) for inputs in range(10, 14)]
    at.replies += zip(asks, await asyncio.gather(*map(at.read, asks)), strict=True)
    for generation, chunks in at.replies:
        assert differences(models, generation, chunks)[0] < 1e-4


async def trained_under_a_reply(at: Site, models: Models) -> None:
    """Both cells leave serving, the second in mid-reply; its trainer is killed with a micro-step in its hands."""
    states: list[CellState] = []
    await at.cells.switch(0, CellRole.TRAINING, states.append)
    generation = asked(NEW, request_id="waits", inputs=50, min_new_tokens=NEW)
    reading = await at.reading(generation, 80)
    await at.cells.switch(1, CellRole.TRAINING, states.append)
    assert states == [CellState.DRAINING, CellState.TO_TRAINING, CellState.TRAINING] * 2
    await at.open(0)
    heard = at.reports
    while not (heard.done(0, 0) and heard.done(0, 1)):
        await at.offer(0)
        await until(lambda: len(heard.done(0)) == at.offered)
    await killed_with_a_micro_step(at)
    said = await at.update(0)
    assert sorted(heard.done(0)) == list(range(at.offered)), "each once"
    assert said["logprob_difference_max_lag0"] < 1e-4, "engine and trainer have the same weights"
    assert abs(torch.from_numpy(at.core.values()) - alone(at)).max() <= 1e-6
    await at.cells.publish(1)
    models[1] = model_of(at.folder / "weights" / "version-1")
    await until(lambda: len(heard.told) == 2)
    assert heard.told == [CellFailed(0.0, 1), CellJoined(0.0, 1)]
    await reading
    whole(at.chunks)
    assert (len(at.moves), set(versions(at.chunks))) == (1, {0, 1})
    assert max(differences(models, generation, at.chunks).values()) < 1e-4
    await at.cells.switch(0, CellRole.SERVING, states.append)
    assert heard.steps(0)[:7] == ["drain", "release", "load", "export", "offload", "restore", "admit"]
    assert heard.steps(1)[:5] == ["drain", "release", "load", "reset", "revive"]


async def killed_with_a_micro_step(at: Site) -> None:
    heard, trainer = at.reports, at.trainer
    while True:
        os.kill(trainer.pid, signal.SIGSTOP)
        await at.offer(0)
        held = 0
        while len(heard.done(0)) + held < at.offered:
            await asyncio.sleep(0.05)
            held = len(set(heard.claims(0, 1)) - set(heard.done(0)))
        if held:
            break
        os.kill(trainer.pid, signal.SIGCONT)
    os.kill(trainer.pid, signal.SIGKILL)


def alone(at: Site) -> Any:
    """The weights that one process makes of the same groups."""
    model = build(read_architecture(at.model), Layout(), initialize=False)
    load(model, at.model)
    trainer = LocalCell(Trainer(model, TRAINER))
    total, executions, first = torch.zeros(trainer.size, dtype=torch.float64), 0, 0
    for group in range(at.groups):
        offer = offer_of(at.replies, group, first, 0)
        work = group_work(items_of(at.replies, group), offer, Selection(), Baseline.MEAN_STD, "trees")
        for step in work.micro_steps:
            total += torch.from_numpy(trainer.gradient(step)[0]).double()
        executions += work.executions
        first += len(offer.samples)
    trainer.update(total.float().numpy(), executions)
    return torch.from_numpy(trainer.values())


async def published_under_a_reply(at: Site, models: Models) -> None:
    """Trained by the core alone, and given to both engines while one of them answers."""
    await at.cells.switch(0, CellRole.TRAINING, lambda state: None)
    await at.open(1)
    await at.offer(1)
    await at.update(1)
    await at.cells.switch(0, CellRole.SERVING, lambda state: None)
    for cell in range(2):  # both have KV of the old weights for what is asked later
        assert set(versions(await at.reply_of(cell, NEW, 40))) == {1}
    generation = asked(NEW, request_id="published", inputs=40, min_new_tokens=NEW)
    reading = await at.reading(generation, 60)
    await at.cells.publish(2)
    models[2] = model_of(at.folder / "weights" / "version-2")
    await reading
    whole(at.chunks)
    assert (at.moves, set(versions(at.chunks))) == ([], {1, 2})
    assert max(differences(models, generation, at.chunks).values()) < 1e-4
    for cell in range(2):
        chunks = await at.reply_of(cell, NEW, 40)
        assert set(versions(chunks)) == {2}
        assert differences(models, generation, chunks)[2] < 1e-4
        assert "publish" in at.reports.steps(cell)


async def published_in_other_ways(at: Site, models: Models, first: Path, other: Path) -> None:
    """Aborted replies go on elsewhere and are of the version that they say. With KV kept, tokens are of neither."""
    models |= {3: model_of(other), 4: model_of(first)}
    tensors = FromTensors(models[3].state_dict())
    ways = ((PausePolicy.KEEP, Weights(3, other, tensors)), (PausePolicy.ABORT, on_disk(4, first)))
    for number, (policy, weights) in enumerate(ways):
        at.publisher.settings = GiveSettings(policy)
        inputs = np.arange(20, 50, dtype=np.int32) + 100 * number  # not asked before: there is no KV of them
        generation = Generation(policy, inputs, Sampling(NEW, min_new_tokens=NEW))
        reading = await at.reading(generation, 60)
        published = await at.publisher.publish(weights)
        assert (len(published.given), published.failed) == (2, {})
        await reading
        whole(at.chunks)
        old, new = sorted(set(versions(at.chunks)))
        assert new == weights.version
        found = differences(models, generation, at.chunks)
        assert found[old] < 1e-4
        if policy is PausePolicy.KEEP:
            swapped = differences({old: models[old], new: models[old]}, generation, at.chunks)
            assert min(found[new], swapped[new]) > 1e-2
            assert not at.moves
        else:
            assert found[new] < 1e-4
            assert at.moves


async def killed_in_a_reply(at: Site, models: Models) -> None:
    """Nobody serves for a while; the engine comes back with what was published, its trainer was not touched."""
    await at.cells.switch(0, CellRole.TRAINING, lambda state: None)
    generation = asked(NEW, request_id="killed", inputs=60, min_new_tokens=NEW)
    reading = await at.reading(generation, 60)
    trainer, server = at.trainer, at.sides[1].server
    assert isinstance(server, LocalServer)
    os.killpg(server.pid, signal.SIGKILL)
    await until(lambda: at.reports.told[2:])
    await at.cells.switch(0, CellRole.SERVING, lambda state: None)
    await reading
    whole(at.chunks)
    assert differences(models, generation, at.chunks)[4] < 1e-4
    await until(lambda: at.reports.told[3:])
    assert at.reports.told[2:] == [CellFailed(0.0, 1), CellJoined(0.0, 1)]
    chunks = await at.reply_of(1, NEW, 60)
    assert set(versions(chunks)) == {4}  # what was published, not what it first served
    assert differences(models, generation, chunks)[4] < 1e-4
    assert at.trainer is trainer


def test_replies_outlive_training_publishing_and_kills(
    tiny_model: Path, other_tiny_model: Path, sglang_engine: Server, tmp_path: Path
) -> None:
    """No reply is broken, each token's log-prob is that of the version which it is said to have, no gradient is lost.

    Nothing in flight is aborted by a publish: miles#2372, miles#2589. No KV of old weights is used: verl#6373.
    """

    async def run() -> None:
        models = {0: model_of(tiny_model)}
        async with site(tiny_model, sglang_engine, tmp_path) as at:
            await sampled(at, models)
            await trained_under_a_reply(at, models)
            await published_under_a_reply(at, models)
            await published_in_other_ways(at, models, tiny_model, other_tiny_model)
            await killed_in_a_reply(at, models)

    asyncio.run(asyncio.wait_for(run(), 500))
