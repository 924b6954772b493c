"""Room for the cells of a run in a Ray cluster."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import ray
from ray.exceptions import RayError
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from gyre.errors import InputError

from .settings import RaySettings

_LOOK_S: Final = 1.0  # between two looks at whether somebody cancelled
_A_BIT: Final = 0.001  # of the resource that each node has under its address


class Placement:
    """One placement group with a bundle for each cell: all get room, or none.

    The first bundle lies on this node. What the core's cell trains with runs here, on the GPUs that its engine has.
    Where a node dies, Ray finds other room for its bundles and leaves the others where they are.
    """

    def __init__(self, settings: RaySettings, cells: int, gpus: int, here: str) -> None:
        """Ask for room for cells of so many GPUs each; `here` is this node's address."""
        self._settings = settings
        self.resources: Final[Mapping[str, float]] = {"CPU": settings.cpus, **({"GPU": float(gpus)} if gpus else {})}
        bundles = [dict(self.resources) for _ in range(cells)]
        bundles[0][f"node:{here}"] = _A_BIT
        self._cells = cells
        self._here = here
        self._group = placement_group(bundles, strategy=settings.strategy)

    async def found(self) -> None:
        """Return when there is room for all cells.

        Raises:
            InputError: there was none in `place_s`. Ray itself would wait for ever: somebody may add nodes.
        """
        end_s = time.monotonic() + self._settings.place_s
        while (left_s := end_s - time.monotonic()) > 0:
            if await asyncio.to_thread(self._group.wait, min(left_s, _LOOK_S)):
                return
        raise InputError(
            f"launch.ray: no room for {self._cells} cells of {_said(self.resources)} (strategy "
            f"{self._settings.strategy}, the first on {self._here}) in {self._settings.place_s:g} s; nodes have "
            f"{_nodes()}, free are {_said(ray.available_resources())}; give fewer cells, smaller ones, or more nodes"
        )

    def of(self, cell: int) -> PlacementGroupSchedulingStrategy:
        """Return where the actor of a cell goes."""
        return PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=cell)

    def close(self) -> None:
        """Give the room back; what runs in it ends."""
        with suppress(RayError):  # a cluster that is gone has none
            remove_placement_group(self._group)


def _nodes() -> str:
    nodes = [node for node in ray.nodes() if node["Alive"]]
    return "; ".join(f"{node['NodeManagerAddress']}: {_said(node['Resources'])}" for node in nodes)


def _said(resources: Mapping[str, float]) -> str:
    kinds = [kind for kind in ("CPU", "GPU") if kind == "CPU" or kind in resources]
    return " and ".join(f"{resources.get(kind, 0):g} {kind}s" for kind in kinds)
