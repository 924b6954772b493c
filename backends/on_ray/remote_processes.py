"""An engine and a trainer on another node, as cells hold them."""

from __future__ import annotations

from typing import Final

from ..cells.satellites import SatelliteLostError
from .cell_actor import BuiltSatellite, StartedServer
from .remote_actor import ActorLostError, RemoteActor


class RemoteServer:
    """See `RunningServer`."""

    def __init__(self, actor: RemoteActor, number: int, started: StartedServer) -> None:
        """Take an engine that an actor holds under a number."""
        self._actor = actor
        self._number = number
        self.url: Final = started.url
        self.key: Final = started.key

    @property
    def ended(self) -> bool:
        """See `RunningServer.ended`. So has one whose actor is lost."""
        return bool(self._actor.problem(self._number))

    async def end(self) -> None:
        """See `RunningServer.end`."""
        await self._actor.end(self._number)


class RemoteSatellite:
    """See `RunningSatellite`."""

    def __init__(self, actor: RemoteActor, number: int, built: BuiltSatellite) -> None:
        """Take a trainer that an actor holds under a number."""
        self._actor = actor
        self._number = number
        self.size: Final = built.size
        self.layout: Final = built.layout

    @property
    def problem(self) -> str:
        """See `RunningSatellite.problem`. One whose actor is lost is lost as well."""
        return self._actor.problem(self._number)

    async def join(self) -> None:
        """See `RunningSatellite.join`."""
        await self._told("join")

    async def leave(self) -> None:
        """See `RunningSatellite.leave`."""
        await self._told("leave")

    async def end(self) -> None:
        """See `RunningSatellite.end`."""
        await self._actor.end(self._number)

    async def _told(self, what: str) -> None:
        try:
            await self._actor.call(what, self._number)
        except ActorLostError as error:
            raise SatelliteLostError(str(error)) from error
