"""A cell whose ranks are processes of this machine."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # its stubs do not name it

from gyre.arrays import Float32Array
from gyre.trajectory.packing import MicroStep

from .cell import layout_name
from .cell_recipe import CellRecipe, built_rank
from .figures import Figures

_GRACE_S = 5.0


class CellLostError(Exception):
    """A rank of the cell ended or failed; the others were ended. Start the cell again."""


class RankCell:
    """Starts a process for each rank, and gives all of them the same calls. See `TrainingCell`.

    Ranks wait for calls on pipes, not in collectives: a cell may rest for hours. What a call returns comes from rank 0,
    vectors from all ranks, one after the other.
    """

    def __init__(self, recipe: CellRecipe) -> None:
        """Start the ranks and wait until they have loaded the weights.

        Raises:
            CellLostError: a rank cannot be started; its own message says why.
        """
        ranks = recipe.layout.ranks
        self._store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        context = multiprocessing.get_context("spawn")
        pipes = [context.Pipe() for _ in range(ranks)]
        self._connections = [ours for ours, _ in pipes]
        self._processes: list[BaseProcess] = [
            context.Process(target=_serve, args=(theirs, recipe, rank, self._store.port), daemon=True)
            for rank, (_, theirs) in enumerate(pipes)
        ]
        for process, (_, theirs) in zip(self._processes, pipes, strict=True):
            process.start()
            theirs.close()
        ready = self._replies()
        self._sizes = [size for size, _ in ready]
        self.size = sum(self._sizes)
        layouts = [layout for _, layout in ready]
        self.layout = layouts[0] if ranks == 1 else layout_name(layouts)  # one rank is a `LocalCell`, here or elsewhere

    @property
    def processes(self) -> tuple[int, ...]:
        """Process ids of the ranks."""
        return tuple(process.pid or 0 for process in self._processes)

    def release(self) -> None:
        """See `TrainingCell.release`."""
        self._call_all("release")

    def load(self, values: Float32Array, version: int) -> None:
        """See `TrainingCell.load`."""
        self._call("load", [(part, version) for part in self._parts(values)])

    def values(self) -> Float32Array:
        """See `TrainingCell.values`."""
        return np.concatenate(self._call_all("values"))

    def gradient(self, step: MicroStep) -> tuple[Float32Array, Figures]:
        """See `TrainingCell.gradient`."""
        found = self._call_all("gradient", step)
        return np.concatenate([gradient for gradient, _ in found]), found[0][1]

    def update(self, gradient: Float32Array, executions: int) -> Mapping[str, float]:
        """See `TrainingCell.update`."""
        made: list[Mapping[str, float]] = self._call("update", [(p, executions) for p in self._parts(gradient)])
        return made[0]

    def save(self, folder: Path) -> None:
        """See `TrainingCell.save`."""
        self._call_all("save", folder)

    def restore(self, folder: Path, version: int) -> None:
        """See `TrainingCell.restore`."""
        self._call_all("restore", folder, version)

    def export(self, out: Path, source: Path) -> None:
        """See `TrainingCell.export`."""
        self._call_all("export", out, source)

    def close(self) -> None:
        """End the ranks; a second call does nothing."""
        for connection in self._connections:
            connection.close()
        for process in self._processes:
            process.join(_GRACE_S)
            if process.is_alive():
                process.kill()
                process.join()

    def __enter__(self) -> Self:
        """Return the cell."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End the ranks."""
        self.close()

    def _parts(self, values: Float32Array) -> list[Float32Array]:
        return np.split(values, np.cumsum(self._sizes)[:-1])

    def _call_all(self, name: str, *arguments: Any) -> list[Any]:
        return self._call(name, [arguments] * len(self._connections))

    def _call(self, name: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        try:
            for connection, own in zip(self._connections, arguments, strict=True):
                connection.send((name, own))
        except OSError as error:
            raise self._lost("a rank does not listen") from error
        return self._replies()

    def _replies(self) -> list[Any]:
        """Return what each rank says; a rank that ends, or fails, ends them all: the others wait for it for ever."""
        replies: dict[int, Any] = {}
        while len(replies) < len(self._connections):
            open_ranks = [rank for rank in range(len(self._connections)) if rank not in replies]
            ready = wait([self._connections[rank] for rank in open_ranks])
            for rank in open_ranks:
                if self._connections[rank] not in ready:
                    continue
                try:
                    failed, reply = self._connections[rank].recv()
                except (OSError, EOFError) as error:
                    raise self._lost(f"rank {rank} ended") from error
                if failed:
                    raise self._lost(f"rank {rank}: {reply}")
                replies[rank] = reply
        return [replies[rank] for rank in range(len(self._connections))]

    def _lost(self, why: str) -> CellLostError:
        for process in self._processes:
            process.kill()
        self.close()
        return CellLostError(why)


def _serve(connection: Connection, recipe: CellRecipe, rank: int, port: int) -> None:
    """Be a rank until the cell closes its pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all of a terminal: who owns the cell ends it
    try:
        cell = built_rank(recipe, rank, TCPStore("127.0.0.1", port, is_master=False))
        connection.send((False, (cell.size, cell.layout)))
        while True:
            name, arguments = connection.recv()
            connection.send((False, getattr(cell, name)(*arguments)))
    except EOFError:
        pass
    except Exception as error:
        connection.send((True, f"{type(error).__name__}: {error}"))
