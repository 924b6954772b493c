"""A cell's actor, as the run's process holds it: calls that never wait for a dead one, and a look at it each second."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from contextlib import suppress
from typing import Any, Final

import ray
from ray.exceptions import ActorUnavailableError, RayError, RayTaskError

from .cell_actor import Site

_log = logging.getLogger(__name__)
_LOOK_S: Final = 1.0
_END_S: Final = 30.0  # for a process to be ended; then the actor is, and all that it holds
_MOST_SAID: Final = 400  # characters


class ActorLostError(Exception):
    """An actor, or its node, has died or does not answer. What it held is gone."""


class RemoteActor:
    """One actor from its start to its end. It is never restarted: what it held would be lost all the same."""

    def __init__(self, actor: Any, silent_s: float) -> None:
        """Take Ray's handle of an actor that was asked for; without an answer for `silent_s` it counts as lost."""
        self._actor = actor
        self._silent_s = silent_s
        self._numbers = itertools.count()
        self._problems: dict[int, str] = {}
        self._gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watch: asyncio.Task[None] | None = None
        self.lost = ""  # why it is of no use any more
        self.site = Site("", "", 0)

    async def up(self, within_s: float) -> None:
        """Return when it runs.

        Raises:
            ActorLostError: it cannot, or did not in that time.
        """
        try:
            async with asyncio.timeout(within_s):
                self.site = await self.call("site")
        except TimeoutError as error:
            raise ActorLostError(f"Ray did not start its actor in {within_s:g} s") from error
        self._watch = asyncio.create_task(self._look_regularly())

    def number(self) -> int:
        """Return a number for a process, never given before."""
        return next(self._numbers)

    def problem(self, number: int) -> str:
        """Return what is wrong with a process, as of a moment ago; "" where nothing is known."""
        return self.lost or self._problems.get(number, "")

    async def call(self, name: str, *arguments: Any) -> Any:
        """Call a method of `CellActor`; its own exceptions come through. Who is cancelled does not stop it.

        Raises:
            ActorLostError: the actor is lost, or nobody knows whether it did what it was asked for; it is ended then.
        """
        try:
            return await self._answer(name, *arguments)
        except RayTaskError as error:
            raise error.cause from error
        except RayError as error:
            self.lose(f"its actor has died: {_short(error)}")
            raise ActorLostError(self.lost) from error

    async def end(self, number: int) -> None:
        """End a process; an actor that does not do so in time is ended itself. Never raises."""
        try:
            async with asyncio.timeout(_END_S):
                await self.call("end", number)
        except ActorLostError:
            pass  # it took all that it held with it
        except Exception as error:
            self.lose(f"it did not end a process: {error!r}")
        self._problems.pop(number, None)

    def lose(self, reason: str) -> None:
        """End the actor and all that it holds; a second time does nothing."""
        if self.lost:
            return
        self.lost = reason
        self._gone.set_result(None)
        if self._watch is not None:
            self._watch.cancel()
        with suppress(RayError):
            ray.kill(self._actor)

    async def _answer(self, name: str, *arguments: Any) -> Any:
        if self.lost:
            raise ActorLostError(self.lost)
        answer = asyncio.wrap_future(getattr(self._actor, name).remote(*arguments).future())
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())  # perhaps nobody waits any more
        await asyncio.wait({answer, self._gone}, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise ActorLostError(self.lost)
        return answer.result()

    async def _look_regularly(self) -> None:
        heard_s = time.monotonic()
        while True:
            await asyncio.sleep(_LOOK_S)
            try:
                async with asyncio.timeout(self._silent_s):
                    self._problems = await self._answer("problems")
                heard_s = time.monotonic()
            except ActorLostError:
                return
            except (TimeoutError, ActorUnavailableError):
                if time.monotonic() - heard_s > self._silent_s:
                    self.lose(f"its actor has been silent for {self._silent_s:g} s")
            except Exception as error:  # whatever it is: one that nobody looks at must not pass for well
                self.lose(f"its actor has died: {_short(error)}")
            if self.lost:
                _log.warning("an actor on %s is lost: %s", self.site.address, self.lost)
                return


def _short(error: Exception) -> str:
    """Return the end of what Ray says: there it comes to the cause."""
    return " ".join(str(error).split())[-_MOST_SAID:]
