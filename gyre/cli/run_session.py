"""One session of a run: its parts are brought up, driven until the end or a signal, and ended."""

from __future__ import annotations

import asyncio
import gc
import logging
from contextlib import closing
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gyre.backends.deploy.deployment import OpenedRun
    from gyre.backends.deploy.launcher import Launcher
    from gyre.backends.run.driver import RealCluster

    from .run_view import RunView


async def run_session(run: OpenedRun, launcher: Launcher, view: RunView) -> None:
    """Drive a run until it is complete, or stopped by Ctrl-C or SIGTERM; a second one ends the process at once.

    Raises:
        RunFailedError, InputError: as `RealCluster.run`.
    """
    from gyre.backends.proxy.json_logs import log_json
    from gyre.backends.run.driver import stopped_by_signals

    run.places.make()
    session = _Session(run, launcher, view)
    with closing(logging.FileHandler(run.places.logs / "driver.jsonl")) as handler, stopped_by_signals(session):
        log_json(handler=handler)
        await session.to_its_end()


class _Session:
    def __init__(self, run: OpenedRun, launcher: Launcher, view: RunView) -> None:
        self._run = run
        self._launcher = launcher
        self._view = view
        self._cluster: RealCluster | None = None
        self._working: asyncio.Task[None] | None = None
        self._stopping = False

    async def to_its_end(self) -> None:
        self._working = asyncio.create_task(self._drive())
        try:
            await self._working
        except asyncio.CancelledError:
            if not self._stopping:
                raise

    def stop(self) -> None:
        """End the run here: at its next event, or at once while its cells come up and it has none."""
        assert self._working is not None
        self._stopping = True
        self._view.say("the run is being stopped")
        if self._cluster is not None and self._run.follower.begun:
            self._cluster.stop()
        else:
            self._working.cancel()

    async def _drive(self) -> None:
        from gyre.backends.deploy.deployment import deployed

        async with deployed(self._run, self._launcher, self._view.say) as deployment:
            self._cluster = deployment.cluster
            showing = asyncio.create_task(self._view.follow(deployment, self._run.follower))
            # Else the collector looks through all that was imported every so often: half a second, for every stream.
            gc.collect()
            gc.freeze()
            try:
                if await deployment.cluster.run():
                    self._view.say("the model is written")
                    await deployment.write_model()
            finally:
                gc.unfreeze()
                showing.cancel()
                await asyncio.gather(showing, return_exceptions=True)
