"""How a run uses a Ray cluster."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class RaySettings(BaseModel):
    """The cluster, and what a cell takes of it."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    address: str = Field(
        default="auto",
        min_length=1,
        description="auto: the cluster that this machine is a node of; local: one of this machine, for the run alone",
    )
    cpus: float = Field(default=8.0, gt=0, description="CPUs of each cell")
    strategy: Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"] = Field(
        default="PACK", description="Ray's name for how cells are spread over nodes; a cell is always on one"
    )
    place_s: float = Field(default=600.0, gt=0, description="seconds for Ray to find room, at the start and later")
    silent_s: float = Field(default=60.0, gt=0, description="seconds without an answer after which a cell is lost")
