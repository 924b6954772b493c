"""Both sides of a cell with nothing behind them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field


@dataclass
class Sides:
    """Both sides of a cell in one: what each step leaves, and the steps that fail or take for ever."""

    serves: bool = True
    holds_memory: bool = False  # the trainer
    fails: set[str] = field(default_factory=set)
    hangs: set[str] = field(default_factory=set)
    done: list[str] = field(default_factory=list)
    trouble: str = ""  # of the engine
    trainer_trouble: str = ""
    name: str = "http://engine"

    async def _step(self, name: str) -> None:
        await asyncio.sleep(0)
        if name in self.fails:
            raise RuntimeError(f"{name} does not work")
        if name in self.hangs:
            await asyncio.Event().wait()
        self.done.append(name)

    async def drain(self) -> None:
        self.serves = False
        await self._step("drain")

    def readmit(self) -> bool:
        self.serves = True
        return True

    async def release(self) -> None:
        await self._step("release")

    async def load(self) -> None:
        await self._step("load")
        self.holds_memory = True

    async def offload(self) -> None:
        await self._step("offload")
        self.holds_memory = False

    async def restore(self) -> None:
        await self._step("restore")

    async def admit(self) -> None:
        await self._step("admit")
        self.serves = True

    async def reset(self) -> None:
        await self._step("reset")
        self.holds_memory = False

    async def revive(self) -> None:
        await self._step("revive")
        self.serves, self.trouble = True, ""

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    def problem(self) -> str:
        return self.trouble


class TrainerOf:
    """The training side of both, with troubles of its own."""

    def __init__(self, sides: Sides) -> None:
        self._sides = sides

    def __getattr__(self, name: str) -> object:
        return getattr(self._sides, name)

    async def reset(self) -> None:
        await self._sides.reset()
        self._sides.trainer_trouble = ""

    def problem(self) -> str:
        return self._sides.trainer_trouble
