"""The connection of a run's process to a Ray cluster."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import ray

from gyre.errors import InputError

from ..run.worker import Worker

LOCAL: Final = "local"


@asynccontextmanager
async def connected(address: str) -> AsyncIterator[str]:
    """Connect to a cluster, or start one on this machine, for as long as the context lasts; yield this node's address.

    A connection that is there already is used, and left as it is.

    Raises:
        InputError: there is no such cluster, or it runs other versions of Ray or Python.
    """
    if ray.is_initialized():
        yield ray.util.get_node_ip_address()
        return
    # A thread of its own, which stays: what Ray starts ends with the thread that started it. And only in the main
    # thread it would take SIGTERM for itself, with which the run is stopped in good order.
    thread = Worker("ray")
    try:
        try:
            await thread.run(lambda: _connect(address))
            yield ray.util.get_node_ip_address()
        finally:
            await thread.run(ray.shutdown)  # also after a cancelled start, which has ended by then
    finally:
        thread.close()


def _connect(address: str) -> None:
    try:
        if address == LOCAL:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent anywhere unasked
            os.environ.setdefault("RAY_worker_niceness", "0")  # engines would be starved by whatever else runs here
            ray.init(address=LOCAL, include_dashboard=False, log_to_driver=False, configure_logging=False)
        else:
            ray.init(address=address, log_to_driver=False, configure_logging=False)
    except (ConnectionError, RuntimeError, ValueError) as error:
        why = " ".join(str(error).split())
        raise InputError(
            f'launch.ray.address: {address}: {why}; start Ray on this machine (ray start), or give "{LOCAL}"'
        ) from error
