"""An engine that samples tokens: what gyre asks of it, and nothing of how it is reached."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from gyre.arrays import Int32Array
from gyre.trajectory.call import Finish


class EngineLostError(Exception):
    """The engine went away, or cannot be reached, or sent something that cannot be read. Another may go on."""


class EngineUnreachableError(EngineLostError):
    """The engine was not reached, or took no request at the time: nothing in this one can be at fault."""


class WrongModelError(EngineLostError):
    """The engine serves another model than requests are made for."""


class RequestRefusedError(Exception):
    """The engine will not run this request, and no other of its kind would. The message says why."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to sample. gyre's own settings, not the harness's."""

    max_new_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1  # -1: all
    min_new_tokens: int = 0
    stop_token_ids: tuple[int, ...] = ()
    stop: tuple[str, ...] = ()  # strings that end the output; the engine keeps them out of the text, not out of the ids
    seed: int | None = None
    constraint: Mapping[str, Any] = field(default_factory=dict)  # such as {"json_schema": "..."} or {"regex": "..."}


@dataclass(frozen=True, slots=True, eq=False)
class Generation:
    """One request: n input token ids, to be continued."""

    request_id: str  # unique for the engine, for aborting
    input_ids: Int32Array
    sampling: Sampling
    continued_tokens: int = 0  # so many last ones of the input were sampled before, for this same reply


@dataclass(frozen=True, slots=True)
class Chunk:
    """What an engine sampled since the chunk before: k tokens, with k log-probabilities and k versions of weights."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]  # natural logarithm, of the distribution that was sampled from
    versions: tuple[int, ...]  # -1 where the engine does not say
    finish: Finish | None = None  # in the last chunk; ABORT where the engine broke off: another may go on from here
    cached_tokens: int = 0  # input tokens that were in the engine's prefix cache, in the last chunk
    # In the last chunk, where the engine knows only then that what chunks before said was not exact (weights changed
    # while tokens were on their way): versions of all the request's tokens. None: what they said stands.
    exact_versions: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What an engine says of itself."""

    model: str
    kv_tokens: int  # tokens of context that it holds at once
    max_running: int  # requests that it runs at once
    max_context_tokens: int
    version: int  # of its weights; -1 where it does not say
    unproven: bool = False  # whether it serves the model that is asked for could not be told


class Engine(Protocol):
    """One engine."""

    name: str  # for people and metrics: its address

    def generate(self, generation: Generation) -> AsyncGenerator[Chunk, None]:
        """Yield chunks as they come; the last has `finish`. Closing the iterator aborts the request on the engine.

        Raises:
            EngineLostError: at any point; chunks that were yielded stand.
            RequestRefusedError: before the first chunk.
        """
        ...

    async def info(self) -> EngineInfo:
        """Ask the engine.

        Raises:
            EngineLostError: it cannot be reached.
        """
        ...

    async def healthy(self) -> bool:
        """Whether it would take a request now (a paused one would not)."""
        ...

    async def close(self) -> None:
        """Let its connections go; the engine itself goes on."""
        ...
