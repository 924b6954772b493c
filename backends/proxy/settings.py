"""How a proxy behaves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ..engines.engine import Sampling
from .limits import BOUNDS, Bounds

MOST_KEEP_ALIVE_S: Final = 30.0  # harnesses give up soon after twice this


@dataclass(frozen=True, slots=True)
class ProxySettings:
    """Times in seconds."""

    host: str = "127.0.0.1"
    port: int = 0  # 0: a free one
    descriptor: int | None = None  # of a socket that listens already, in place of host and port
    admin_port: int = 0
    model: str = "gyre-policy"  # the name that is listed; any name is taken
    sampling: Sampling = field(default_factory=lambda: Sampling(max_new_tokens=32_768))
    context_tokens: int | None = None  # None: as the engines say
    bounds: Bounds = BOUNDS
    keep_alive_s: float = 10.0
    linger_s: float = 5.0  # a generation goes on for so long without a client: its retry may be on its way
    replay_s: float = 120.0  # a finished reply is replayed to retries for so long
    most_replays: int = 3  # of one reply; a harness that asks the same again and again wants another answer
    farewells: int = 3  # polite replies past a limit, before there are only errors

    def __post_init__(self) -> None:
        """Refuse what would lose harnesses.

        Raises:
            ValueError: the keep-alive interval is not above 0 and at most 30 seconds.
        """
        if not 0 < self.keep_alive_s <= MOST_KEEP_ALIVE_S:
            raise ValueError(f"keep_alive_s is {self.keep_alive_s:g}, expected more than 0 and at most 30 seconds")


SETTINGS: Final = ProxySettings()
