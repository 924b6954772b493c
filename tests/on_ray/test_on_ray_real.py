"""Cells on the nodes of a local Ray cluster: engines, trainers, and what is lost with actors, nodes and drivers."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import tempfile
from asyncio.subprocess import PIPE
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray", reason="cells are placed by Ray")
pytest.importorskip("aiohttp", reason="engines are asked by aiohttp")
pytest.importorskip("orjson", reason="the pool's engines speak JSON by orjson")

import aiohttp
from actor_kit import engine, parent, process_at, runs, sleeper, trainer, until
from ray.cluster_utils import Cluster

from gyre.backends.cells.engine_side import EngineSide
from gyre.backends.cells.satellites import SatelliteLostError
from gyre.backends.cells.server import RunningServer
from gyre.backends.engines.member import MemberState
from gyre.backends.engines.pool import EnginePool
from gyre.backends.on_ray.ray_cells import ray_cells
from gyre.backends.on_ray.settings import RaySettings
from gyre.backends.publishing.publisher import Publisher
from gyre.backends.publishing.weights import on_disk
from gyre.errors import InputError

_SMALL = {"num_cpus": 2, "object_store_memory": 80 << 20}
_OTHER, _THIRD = "127.0.0.2", "127.0.0.3"  # addresses of nodes beside the first
_SOON = {"health_check_initial_delay_ms": 1000, "health_check_period_ms": 1000, "health_check_failure_threshold": 10}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two nodes of two CPUs. A path of pytest's own would be too long for Ray's sockets."""
    folder = Path(tempfile.mkdtemp(prefix="gyre-ray-"))
    (folder / "ray").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", str(folder))
        patch.setenv("RAY_worker_niceness", "0")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("PYTHONPATH", str(Path(__file__).parent))  # actors are told what to start by name
        patch.setenv("RAY_AUTH_MODE", "disabled")  # else it keeps a token in the home folder
        nodes = Cluster(
            initialize_head=True, head_node_args={**_SMALL, "include_dashboard": False, "_system_config": _SOON}
        )
        try:
            nodes.other = nodes.add_node(**_SMALL, node_ip_address=_OTHER)
            yield nodes
        finally:
            nodes.shutdown()
            shutil.rmtree(folder, ignore_errors=True)


def settings(cluster: Any, **more: Any) -> RaySettings:
    return RaySettings(**{"address": cluster.address, "cpus": 1, "strategy": "STRICT_SPREAD", **more})


async def status(url: str, key: str) -> int:
    headers = {"Authorization": f"Bearer {key}"}
    async with aiohttp.ClientSession() as session, session.get(f"{url}/model_info", headers=headers) as answer:
        return answer.status


def test_engines_and_trainers_run_on_their_nodes_die_and_come_back(cluster: Any, tmp_path: Path) -> None:
    """A server that dies is started by the same actor; with an actor all that it holds goes, and a new one comes."""
    weights, log = on_disk(3, tmp_path), tmp_path / "engine.log"

    async def run() -> None:
        async with ray_cells(settings(cluster), 2, gpus=0, folder=tmp_path) as cells:
            launch = cells.engine(1, engine(log))
            first = await launch(weights)
            assert first.url.startswith(f"http://{_OTHER}:")
            assert not first.ended
            assert [await status(first.url, key) for key in (first.key, "", "no")] == [200, 401, 401]
            server = process_at(first.url)
            for said in ("cmdline", "environ"):
                assert first.key.encode() not in Path(f"/proc/{server}/{said}").read_bytes()
            assert log.stat().st_mode & 0o077 == 0

            satellite = await cells.satellite(1, trainer)(1, "http://core:1")
            assert (satellite.size, satellite.layout, satellite.problem) == (7, "of one", "")
            await satellite.join()
            await satellite.leave()
            with pytest.raises(SatelliteLostError, match="its trainer has failed at http://core:1"):
                await satellite.join()
            await until(lambda: satellite.problem == "its trainer has failed")

            os.kill(server, signal.SIGKILL)
            await until(lambda: first.ended)
            await first.end()
            second = await launch(weights)
            server, actor = process_at(second.url), parent(process_at(second.url))
            assert second.url != first.url
            assert second.key != first.key

            os.kill(actor, signal.SIGKILL)
            await until(lambda: second.ended and not runs(server))
            assert "actor" in satellite.problem
            for gone in (second, satellite):
                await gone.end()
            third = await launch(weights)
            assert parent(process_at(third.url)) != actor
            assert await status(third.url, third.key) == 200

            await admitted(cells.engine(0, engine(log)), tmp_path)
            await cancelled(cells.engine(1, sleeper(tmp_path / "pid")), tmp_path / "pid")
            server = process_at(third.url)
        await until(lambda: not runs(server))

    asyncio.run(run())
    assert not list(tmp_path.glob(".seen-*"))


async def admitted(launch: Any, folder: Path) -> None:
    """An engine with a key comes into the pool, and leaves nothing when its side is closed."""
    async with EnginePool() as pool:
        side = EngineSide(launch, Publisher(pool, on_disk(3, folder)))
        await side.start()
        server = process_at(side.name)
        await until(lambda: pool.members()[side.name] is MemberState.SERVING)
        assert side.problem() == ""
        await side.close()
        await until(lambda: not runs(server))


async def cancelled(launch: Any, note: Path) -> None:
    launching = asyncio.create_task(launch(on_disk(3, note.parent)))
    await until(lambda: note.exists() and note.read_text())
    launching.cancel()
    await asyncio.gather(launching, return_exceptions=True)
    assert launching.cancelled()
    assert not runs(int(note.read_text()))


def test_an_actor_that_freezes_is_lost_and_its_engine_ends(cluster: Any, tmp_path: Path) -> None:
    weights, log = on_disk(3, tmp_path), tmp_path / "engine.log"

    async def run() -> None:
        async with ray_cells(settings(cluster, silent_s=3), 2, gpus=0, folder=tmp_path) as cells:
            launch = cells.engine(1, engine(log))
            first = await launch(weights)
            server, actor = process_at(first.url), parent(process_at(first.url))
            os.kill(actor, signal.SIGSTOP)
            try:
                await until(lambda: first.ended)
                await first.end()
                second = await launch(weights)
                assert second.url != first.url
                await until(lambda: not runs(server))
            finally:
                with suppress(ProcessLookupError):
                    os.kill(actor, signal.SIGKILL)

    asyncio.run(run())


def test_what_ray_cannot_place_and_nodes_do_not_see_is_refused(cluster: Any, tmp_path: Path) -> None:
    async def brought_up(cells: int, more: dict[str, Any], folder: Path = tmp_path, *files: Path) -> None:
        async with ray_cells(settings(cluster, **more), cells, gpus=0, folder=folder, files=files):
            pass

    with pytest.raises(InputError, match=r"no room for 2 cells of 64 CPUs .* in 1 s; nodes have .*: 2 CPUs; "):
        asyncio.run(brought_up(2, {"cpus": 64, "place_s": 1}))
    own = os.open(tmp_path, os.O_RDONLY)  # what stands behind this path is another folder in each process, or none
    try:
        with pytest.raises(
            InputError, match=f"does not see /proc/self/fd/{own}/.seen-.*file system that all nodes share"
        ):
            asyncio.run(brought_up(1, {}, Path(f"/proc/self/fd/{own}")))
    finally:
        os.close(own)
    with pytest.raises(InputError, match="does not see /proc/self/cmdline, or sees another file"):
        asyncio.run(brought_up(1, {}, tmp_path, Path("/proc/self/cmdline")))


def test_the_engines_of_a_driver_that_is_killed_end(cluster: Any, tmp_path: Path) -> None:
    async def run() -> None:
        driver = Path(__file__).with_name("driver_to_kill.py")
        process = await asyncio.create_subprocess_exec(
            sys.executable, driver, cluster.address, tmp_path, stdout=PIPE, env=os.environ
        )
        try:
            assert process.stdout is not None
            url = (await asyncio.wait_for(process.stdout.readline(), 120)).decode().strip()
            server = process_at(url)
            actor = parent(server)
            process.kill()
            await until(lambda: not runs(server) and not runs(actor))
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    asyncio.run(run())


def test_a_cell_whose_node_dies_comes_back_on_another(cluster: Any, tmp_path: Path) -> None:
    weights, log = on_disk(3, tmp_path), tmp_path / "engine.log"

    async def run() -> None:
        async with ray_cells(settings(cluster, place_s=60), 2, gpus=0, folder=tmp_path) as cells:
            launch = cells.engine(1, engine(log))
            first: RunningServer = await launch(weights)
            server = process_at(first.url)
            cluster.remove_node(cluster.other, allow_graceful=False)
            await until(lambda: first.ended and not runs(server))
            await first.end()
            waiting = asyncio.create_task(launch(weights))
            await asyncio.sleep(0)  # a new actor is asked for before there is a node for it
            cluster.add_node(**_SMALL, node_ip_address=_THIRD)
            assert (await waiting).url.startswith(f"http://{_THIRD}:")

    asyncio.run(run())
