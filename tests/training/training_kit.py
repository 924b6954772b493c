"""A tiny model's trainer, groups of made-up executions, and satellites that fail in mid-step."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerContext
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import torch
from model_kit import VOCABULARY, loaded

from gyre.arrays import Float32Array
from gyre.backends.models.world import world_of_one
from gyre.backends.training.cell import LocalCell
from gyre.backends.training.elastic_training import ElasticTraining
from gyre.backends.training.figures import Figures
from gyre.backends.training.group_micro_steps import group_work
from gyre.backends.training.satellite import Satellite
from gyre.backends.training.settings import ObjectiveSettings, OptimizerSettings, TrainerSettings
from gyre.backends.training.step_client import StepClient
from gyre.backends.training.trainer import Trainer
from gyre.commands import OfferMicroSteps
from gyre.events import Event, MicroStepClaimed, MicroStepDone
from gyre.trajectory.advantages import Baseline
from gyre.trajectory.building import TreeBuilder
from gyre.trajectory.call import CallRecord, Finish
from gyre.trajectory.execution import ExecutionRecord
from gyre.trajectory.packing import MicroStep
from gyre.trajectory.selection import Selection, select
from gyre.trajectory.store.part import Item

KEY = "key"
SETTINGS = TrainerSettings(
    objective=ObjectiveSettings(kind="ppo"), optimizer=OptimizerSettings(learning_rate=1e-3, warmup_updates=2)
)
GROUP_SIZE = 4


def new_trainer(folder: Path, settings: TrainerSettings = SETTINGS) -> Trainer:
    """A trainer of a model in a folder; the process is in a world of one."""
    return Trainer(loaded(folder), settings)


def items_of(group: int) -> list[Item]:
    """A group of executions of three calls, of which the second one retries; scores differ."""
    draw = np.random.default_rng(group)
    items = []
    for number in range(group * GROUP_SIZE, (group + 1) * GROUP_SIZE):
        name = f"{number}-0"
        builder = TreeBuilder(name, "")
        context = draw.integers(0, VOCABULARY, 6 + number % 3).astype(np.int32)
        for turn in range(3):
            output = draw.integers(0, VOCABULARY, 4).astype(np.int32)
            builder.add(
                CallRecord(
                    execution=name,
                    call_id=f"call-{turn}",
                    sequence=turn,
                    input_ids=context,
                    output_ids=output,
                    logprobs=np.full(4, -5.7, np.float32),
                    versions=np.zeros(4, np.int32),
                    finish=Finish.STOP,
                )
            )
            if turn != 1:
                context = np.concatenate((context, output))
        items.append((ExecutionRecord(name, str(group), score=float(number % GROUP_SIZE)), builder.close()))
    return items


def offer_of(group: int, first: int, step: int = 0) -> OfferMicroSteps:
    """What a controller offers: a micro-step for each row."""
    lengths = [length for _, tree in items_of(group) for length in select(tree, Selection()).length.tolist()]
    return OfferMicroSteps(0.0, step, group, group % 2, first, tuple((length,) for length in lengths))


async def items(group: int) -> list[Item]:
    """What `ElasticTraining` asks for a group's executions."""
    return items_of(group)


async def offer_all(training: ElasticTraining, groups: Iterable[int]) -> int:
    """Offer the micro-steps of groups; return how many those are."""
    first = 0
    for group in groups:
        offer = offer_of(group, first)
        await training.offer(offer)
        first += len(offer.samples)
    return first


async def until(condition: Callable[[], object], seconds: float = 300.0) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


def train_alone(trainer: Trainer, groups: Iterable[int]) -> None:
    """One process goes through the micro-steps in their order, adding in float64, and makes the update."""
    total = torch.zeros(len(trainer.weights), dtype=torch.float64)
    executions, first = 0, 0
    for group in groups:
        offer = offer_of(group, first)
        work = group_work(items_of(group), offer, Selection(), Baseline.MEAN_STD, "trees")
        for step in work.micro_steps:
            total += trainer.gradient(step)[0].double()
        executions += work.executions
        first += len(offer.samples)
    trainer.update(total.float(), executions)


def group_micro_steps(group: int) -> list[MicroStep]:
    """A group's micro-steps, packed as trees."""
    offer = offer_of(group, 0)
    return group_work(items_of(group), offer, Selection(), Baseline.MEAN_STD, "trees").micro_steps


@dataclass
class Heard:
    """The driver's ear."""

    now_s: float = 0.0
    events: list[Event] = field(default_factory=list)

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    def claims(self, cell: int) -> list[int]:
        """Micro-steps that a cell claimed."""
        return [e.micro_step for e in self.events if isinstance(e, MicroStepClaimed) and e.cell == cell]

    def done(self, cell: int | None = None) -> list[int]:
        """Micro-steps that a cell returned, or any."""
        done = [e for e in self.events if isinstance(e, MicroStepDone)]
        return [e.micro_step for e in done if cell is None or e.cell == cell]


class FailingCell(LocalCell):
    """Works once, then fails in the middle of its second micro-step: "kill", "stop", or "half" a message sent."""

    def __init__(self, trainer: Trainer, fault: str, address: str) -> None:
        super().__init__(trainer)
        self._fault = fault
        self._address = address
        self._worked = 0

    def gradient(self, step: MicroStep) -> tuple[Float32Array, Figures]:
        found = super().gradient(step)
        self._worked += 1
        if self._worked == 2 and self._fault:
            if self._fault == "half":
                self._send_half(*found)
            os.kill(os.getpid(), signal.SIGSTOP if self._fault == "stop" else signal.SIGKILL)
        return found

    def _send_half(self, gradient: Float32Array, figures: Figures) -> None:
        parts = urlsplit(self._address)
        with StepClient(self._address, KEY, 9) as client:
            info = client.info(1.0)
        assert info is not None
        with socket.create_connection((parts.hostname, parts.port)) as wire:
            head = (
                f"PUT /attempts/{info.attempt}/gradients/0?cell=9 HTTP/1.1\r\nHost: core\r\n"
                f"Authorization: Bearer {KEY}\r\nX-Gyre-Figures: {figures.to_json()}\r\n"
                f"X-Gyre-Digest: 0\r\nContent-Length: {gradient.nbytes}\r\n\r\n"
            )
            wire.sendall(head.encode() + gradient.tobytes()[: gradient.nbytes // 2])


def satellite(folder: Path, address: str, cell: int, fault: str) -> None:
    """A process: a cell with weights of its own, which it must not use."""
    with world_of_one(), StepClient(address, KEY, cell) as client:
        trainer = new_trainer(folder)
        trainer.weights.load(trainer.weights.values * 0.5)
        Satellite(FailingCell(trainer, fault, address), client, wait_s=1.0, retry_s=0.1).run()


def forking() -> ForkServerContext:
    """Starts processes that need not import torch again."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["gyre.backends.training.rank_cell", "gyre.backends.training.satellite", "transformers"]
    )
    return context


@contextmanager
def killed_at_the_end(processes: Sequence) -> Iterator[None]:  # type: ignore[type-arg]
    """End processes that a test started, whatever state they are in."""
    try:
        yield
    finally:
        for process in processes:
            if process.pid is not None:
                process.kill()
                process.join()
