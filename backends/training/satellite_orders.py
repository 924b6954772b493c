"""What a satellite's process is told and says: one JSON object a line, over its pipes.

The first line that it reads are its `SatelliteOrders`; the key is nowhere else. Then come commands, {"do", "id"}:
`join`, to join the core's steps, answered at once; `leave`, answered when the micro-step that it computes is sent.
The end of its input ends the process. It says `ready` once, with the size and the layout of its vectors, {"done": id}
for each command, `beat` every `beat_s` seconds while it lives, and `failed` with a reason before it ends by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pydantic import RootModel

from .cell_recipe import CellRecipe

JOIN: Final = "join"
LEAVE: Final = "leave"


@dataclass(frozen=True, slots=True, kw_only=True)
class SatelliteOrders:
    """What a satellite builds, and whom it works for. Times in seconds."""

    recipe: CellRecipe
    cell: int
    address: str  # of the core, "http://host:port"
    key: str = field(repr=False)
    shared: Path | None = None  # folder of `SharedSnapshots`; None: weights come from the core over HTTP
    wait_s: float = 10.0  # of a request for work, which a leave ends
    retry_s: float = 1.0  # before the core is asked again after it did not answer
    transfer_s: float = 30.0  # of every wait for a byte
    beat_s: float = 1.0
    cpus: tuple[int, ...] = ()  # that it and its ranks may use; none: all

    def to_line(self) -> str:
        """Return them as one JSON line, without a line end."""
        return RootModel[SatelliteOrders](self).model_dump_json()

    @classmethod
    def from_line(cls, line: str) -> SatelliteOrders:
        """Read what `to_line` wrote."""
        return RootModel[SatelliteOrders].model_validate_json(line).root
