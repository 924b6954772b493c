"""Checks of a cell whole: an engine and a trainer on one GPU, and a short run."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np
from gpu_cell_engine import EXAMPLE, deploy_settings, launch_of, reply
from gpu_cell_memory import used_bytes
from gpu_cell_models import ALL_PATHS, Site
from gpu_cell_runner import Sheet

from gyre.backends.cells.cell import Cell, Transfer
from gyre.backends.cells.engine_side import EngineSide
from gyre.backends.cells.trained_weights import TrainedWeights
from gyre.backends.cells.training_sides import CoreSide
from gyre.backends.deploy.cell_processes import built_core, trainer_recipe
from gyre.backends.engines.engine import Sampling
from gyre.backends.engines.pool import EnginePool
from gyre.backends.engines.sglang import SGLangEngine
from gyre.backends.publishing.publisher import Publisher
from gyre.backends.publishing.weights import Weights, on_disk
from gyre.backends.training.elastic_training import ElasticTraining
from gyre.cluster import CellRole
from gyre.commands import OfferMicroSteps
from gyre.events import Event, MicroStepDone
from gyre.trajectory.building import TreeBuilder
from gyre.trajectory.call import CallRecord, Finish
from gyre.trajectory.execution import ExecutionRecord
from gyre.trajectory.selection import select
from gyre.trajectory.store.part import Item

_POLL_S: Final = 0.02
_TRAINED_S: Final = 120.0  # for a micro-step
_EXECUTIONS: Final = 4
_SAMPLING: Final = Sampling(max_new_tokens=64)  # a fewest number would take the end from the engine's log-probs alone
_AGREES: Final = 1e-4  # log-probs of engine and trainer, in float32 on a CPU
_RUN_SETTINGS: Final = (
    *("policy=colocate", "training.steps=2", "training.groups_per_step=2", "training.group_size=4", "cells.count=1"),
    "trainer.checkpoints.every=1",
)
_GPU_SETTINGS: Final = (
    'cells.device="cuda"',
    'cells.dtype="bfloat16"',
    'engine.flags=["--attention-backend=triton"]',  # the example's heads have 16 channels
)


class Peak:
    """The most GPU memory that was in use, looked at every 20 ms."""

    def __init__(self) -> None:
        """Nothing was seen yet."""
        self.bytes = 0

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Look on for as long as the context lasts."""
        ended = threading.Event()

        def look() -> None:
            while not ended.wait(_POLL_S):
                self.bytes = max(self.bytes, used_bytes())

        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


class Heard:
    """The driver's ear, which an elastic core reports to; `done` is set by the first micro-step that is done."""

    def __init__(self) -> None:
        """Begin the clock."""
        self._begin_s = time.monotonic()
        self.done: Final = asyncio.Event()

    @property
    def now_s(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._begin_s

    def __call__(self, event: Event) -> None:
        """Hear of an event."""
        if isinstance(event, MicroStepDone):
            self.done.set()


def whole(site: Site, sheet: Sheet) -> None:
    """Serve, move to training, train a micro-step and update, move back, publish: on one device."""
    peak = Peak()
    with peak.watched():
        asyncio.run(_whole(site, sheet))
    if site.on_gpu:  # less than if neither gave anything away
        each = ("gpu_bytes_before", "trainer_alone_bytes", "engine_alone_bytes")
        sheet.within("peak_bytes", peak.bytes, sum(sheet.figures[name] for name in each))


async def _whole(site: Site, sheet: Sheet) -> None:
    model = site.resident()
    settings = deploy_settings(site, model)
    items: list[Item] = []

    async def group(number: int) -> Sequence[Item]:
        return items

    empty = used_bytes()
    async with built_core(trainer_recipe(settings, 0, first_gpu=0)) as core, EnginePool() as pool:
        awake = used_bytes()
        training = ElasticTraining(core, site.folder / "cell", group, key="key", selection=ALL_PATHS)
        heard = Heard()
        await training.start(heard)
        publisher = Publisher(pool, on_disk(0, model))
        side = EngineSide(launch_of(site, settings, "cell"), publisher)
        cell = Cell(settings.specs[0], side, CoreSide(training))
        cell.record = lambda transfer: _noted(sheet, transfer)
        asleep = used_bytes()
        sheet.note(weights=core.size, trainer_loaded_bytes=awake - empty, trainer_asleep_bytes=asleep - empty)
        try:
            await side.start()
            sheet.note(engine_alone_bytes=used_bytes() - asleep)
            engine = SGLangEngine(side.name)
            items += await _rollouts(engine)
            await cell.switch(CellRole.TRAINING, lambda state: None)
            trained = await _step(site, training, items, heard, sheet)
            before = sheet.figures["release_bytes_after"]  # what neither gives away
            sheet.note(trainer_alone_bytes=asleep - empty + trained - before, gpu_bytes_before=empty)
            newest = await _exported(training, site, model, sheet)
            await publisher.publish(newest)  # no engine serves: the cell's has it when it is admitted
            await cell.switch(CellRole.SERVING, lambda state: None)
            after = await reply(engine, _SAMPLING)
            sheet.holds("new_weights_are_served", set(after.versions) == {1})
            published = await publisher.publish(on_disk(2, newest.folder))
            sheet.note(publish_s=list(published.given.values()))
            sheet.holds("published_to_all", len(published.given) == 1 and not published.failed)
            await engine.close()
        finally:
            await side.close()
            await training.stop()


async def _rollouts(engine: SGLangEngine) -> list[Item]:
    """Sample a group of executions of one call each: what is trained is what the engine said."""
    prompt = np.arange(20, 84, dtype=np.int32)
    items = []
    for number in range(_EXECUTIONS):
        said = await reply(engine, _SAMPLING, tuple(prompt.tolist()))
        builder = TreeBuilder(f"{number}-0", "")
        builder.add(
            CallRecord(
                execution=f"{number}-0",
                call_id="call-0",
                sequence=0,
                input_ids=prompt,
                output_ids=np.array(said.tokens, np.int32),
                logprobs=np.array(said.logprobs, np.float32),
                versions=np.array(said.versions, np.int32),
                finish=Finish.STOP,
            )
        )
        items.append((ExecutionRecord(f"{number}-0", "0", score=float(number % 2)), builder.close()))
    return items


async def _step(site: Site, training: ElasticTraining, items: Sequence[Item], heard: Heard, sheet: Sheet) -> int:
    """Train all in one step; return the GPU's memory in use after it."""
    lengths = [length for _, tree in items for length in select(tree, ALL_PATHS).length.tolist()]
    begin_s = time.monotonic()
    await training.open(0)
    await training.offer(OfferMicroSteps(0.0, 0, 0, 0, 0, (tuple(lengths),)))
    async with asyncio.timeout(_TRAINED_S):
        while not heard.done.is_set():
            if training.failure:
                raise RuntimeError(training.failure)
            await asyncio.sleep(_POLL_S)
    await training.close(0)
    metrics = dict(await training.apply(0))
    sheet.note(step_s=time.monotonic() - begin_s)
    sheet.note(**{name: value for name, value in metrics.items() if name.startswith(("logprob_difference", "grad"))})
    if not site.on_gpu:
        sheet.within("logprob_difference", metrics["logprob_difference_max_lag0"], _AGREES)
    return used_bytes()


async def _exported(training: ElasticTraining, site: Site, model: Path, sheet: Sheet) -> Weights:
    weights = TrainedWeights(training, site.folder / "cell" / "weights", model)
    begin_s = time.monotonic()
    newest = await weights.newest()
    sheet.note(export_s=time.monotonic() - begin_s)
    return newest


def _noted(sheet: Sheet, transfer: Transfer) -> None:
    sheet.note(**{f"{transfer.step}_s": transfer.seconds, f"{transfer.step}_bytes_after": used_bytes()})


def run(site: Site, sheet: Sheet) -> None:
    """`gyre run` of the example, two short steps on one cell; the report's last lines."""
    start, out = site.folder / "doors", site.folder / "run"
    if not (start / "model" / "config.json").exists():
        program = [sys.executable, str(EXAMPLE.with_name("prepare.py")), "--out", str(start)]
        subprocess.run(program, check=True)
    shutil.rmtree(out, ignore_errors=True)
    settings = (*_RUN_SETTINGS, *(_GPU_SETTINGS if site.on_gpu else ()))
    gyre = [sys.executable, "-c", "from gyre.cli import main; main()"]
    flags = [part for one in settings for part in ("--set", one)]
    begin_s = time.monotonic()
    done = subprocess.run(
        [*gyre, "run", str(start / "settings.toml"), "--out", str(out), "--plain", *flags],
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    print(done.stdout)
    lines = done.stdout.strip().splitlines()
    sheet.note(run_s=time.monotonic() - begin_s, last_lines=lines[-3:])
    sheet.holds("it_ended_well", done.returncode == 0 and (out / "summary.json").exists())
