"""A driver that starts an engine in a cluster and says where; it is killed by who started it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from actor_kit import engine

from gyre.backends.on_ray.ray_cells import ray_cells
from gyre.backends.on_ray.settings import RaySettings
from gyre.backends.publishing.weights import on_disk


async def main(address: str, folder: Path) -> None:
    async with ray_cells(RaySettings(address=address, cpus=1), 1, gpus=0, folder=folder) as cells:
        server = await cells.engine(0, engine(folder / "engine.log"))(on_disk(3, folder))
        print(server.url, flush=True)
        await asyncio.sleep(600)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
