"""What a command that evaluates may use."""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel, ConfigDict, Field

_MIB: Final = 2**20
_GIB: Final = 2**30


class Limits(BaseModel):
    """Limits on one run of a command. Where a limit is not on all of its processes together, its text says so."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    wall_s: float = Field(default=600.0, gt=0, description="seconds; then it is asked to end (SIGTERM)")
    grace_s: float = Field(default=2.0, ge=0, description="seconds from then until it is killed")
    cpu_s: int | None = Field(default=None, ge=1, description="seconds of a core, of each process")
    memory_bytes: int = Field(default=4 * _GIB, ge=1, description="resident memory; looked at ten times a second")
    address_space_bytes: int | None = Field(
        default=None, ge=1, description="address space of each process; much more than it uses for some runtimes"
    )
    processes: int = Field(default=512, ge=1, description="processes at a time; looked at ten times a second")
    file_bytes: int = Field(default=_GIB, ge=0, description="size of each file that is written")
    open_files: int = Field(default=1024, ge=8, description="open files of each process")
    output_bytes: int = Field(default=_MIB, ge=0, description="kept of what it prints, of each stream")
    flood_bytes: int = Field(
        default=256 * _MIB, ge=0, description="printed on a stream; a command that prints more is killed"
    )
