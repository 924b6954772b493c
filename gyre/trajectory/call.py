"""One model call, as it was recorded: exact token ids in and out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy.typing as npt

from ..arrays import Float32Array, Int32Array
from ..role import Role


class Finish(StrEnum):
    """Why a call's output ended."""

    STOP = "stop"  # at a stop token or string
    LENGTH = "length"  # at its token limit
    TOOL_CALLS = "tool_calls"
    ABORT = "abort"  # the engine was taken away, or the client hung up
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Media:
    """An image, sound or other content that stands in the input as `length` placeholder tokens from `position` on.

    Placeholders of different content often have equal ids: `digest` (any string that names the content exactly, such
    as a SHA-256) keeps them apart.
    """

    position: int
    length: int
    digest: str


@dataclass(frozen=True, slots=True)
class Placement:
    """An engine that was given the request, or the rest of it after another engine had given it up."""

    engine: str
    at_s: float  # since the execution's start
    tokens: int = 0  # of the output that were there already


@dataclass(frozen=True, slots=True, eq=False)
class CallRecord:
    """A call with n input and m output tokens.

    Nothing is checked here; `gyre.trajectory.check.refusal` says whether a record can be used.
    """

    execution: str
    call_id: str  # unique within the execution
    sequence: int  # commit order within the execution: unique, 0 or more; where calls differ, the first committed wins
    input_ids: Int32Array  # n, the whole input, as the engine got it
    output_ids: Int32Array  # m, as the engine sampled them, stop token included where it was sampled
    logprobs: Float32Array | None = None  # m, of the behaviour policy, natural logarithm
    versions: Int32Array | None = None  # m, weights that sampled each token; None: unknown
    finish: Finish = Finish.STOP
    thread: str = ""  # conversation as the harness names it; "" where it does not
    parent_thread: str = ""  # thread that spawned this one
    role: Role | None = None  # None: to be found from the tree
    harness: str = ""
    model: str = ""
    by_policy: bool = True  # False: another model answered (a judge, a small helper model); never trainable
    delivered: bool = True  # False: the client was gone before it had the reply
    start_s: float = math.nan  # since the execution's start
    end_s: float = math.nan
    queued_s: float = math.nan  # its prompt was made and it asked for an engine; times count as `start_s` does
    first_s: float = math.nan  # its first output token came
    cached_tokens: int = -1  # of the input, in the cache of the engine that ended it; -1: unknown
    placements: tuple[Placement, ...] = ()  # the engines that worked on it, in order
    media: tuple[Media, ...] = ()  # of the input, by position, without overlap
    channels: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)  # more per output token: m rows each
