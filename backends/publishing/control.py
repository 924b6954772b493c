"""The endpoints of an SGLang server that steer it: pause, weights, memory. Every call has a time limit."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

import aiohttp
import orjson

from ..engines.error_text import error_text

_MOST_ANSWER_BYTES: Final = 65_536


class PausePolicy(StrEnum):
    """What becomes of requests in flight while weights change."""

    RETRACT = "retract"  # they wait, and their KV is computed again with the new weights
    ABORT = "abort"  # the engine gives back what it has; the pool's replies go on elsewhere
    KEEP = "keep"  # they wait, and go on with KV of the old weights: log-probs after the change are of neither version

    @property
    def keeps_kv(self) -> bool:
        """Whether KV of the old weights outlives the change."""
        return self is PausePolicy.KEEP


_SGLANG_MODES: Final = {PausePolicy.RETRACT: "retract", PausePolicy.ABORT: "abort", PausePolicy.KEEP: "in_place"}


class ControlError(Exception):
    """A call to steer an engine did not do what it should."""


class ControlRefusedError(ControlError):
    """The engine answered that it did not do it. For weights this is no proof: they may have changed all the same."""


class ControlLostError(ControlError):
    """No answer came: nobody knows whether it was done."""


class ControlUnreachableError(ControlError):
    """The engine could not be connected to: nothing was done."""


class EngineControl:
    """Steers the server at an address, such as "http://10.0.0.7:30000". To be made where an event loop runs.

    `lock` is held by who changes weights or memory; calls themselves do not take it. `call_s` is the most seconds for
    an answer, where a call names no other.
    """

    def __init__(self, url: str, *, key: str = "", call_s: float = 60.0, connect_s: float = 5.0) -> None:
        self.name: Final = url.rstrip("/")
        self.lock: Final = asyncio.Lock()
        self._call_s = call_s
        # A connection a call: one kept from before the server died would make a new call uncertain for no reason.
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, force_close=True),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=connect_s),
            headers={"Authorization": f"Bearer {key}"} if key else {},
        )

    async def close(self) -> None:
        """Let its connections go."""
        await self._session.close()

    async def pause(self, policy: PausePolicy) -> None:
        """Let the engine sample no more. The mode is always said: SGLang's own default aborts."""
        await self.call("/pause_generation", {"mode": _SGLANG_MODES[policy]})

    async def resume(self) -> None:
        """Let it sample again."""
        await self.call("/continue_generation", {})

    async def begin_update(self) -> None:
        """Open a session of changes to weights; one that somebody left open is closed first."""
        try:
            await self.call("/begin_weight_update", {})
        except ControlRefusedError:
            await self.call("/end_weight_update", {})
            await self.call("/begin_weight_update", {})

    async def end_update(self) -> None:
        """Close the session: the weights are made ready for serving."""
        await self.call("/end_weight_update", {})

    async def version(self) -> str:
        """Return what the engine calls its weights."""
        return str((await self._request("GET", "/model_info", None, self._call_s)).get("weight_version"))

    async def name_weights(self, name: str) -> None:
        """Change what the engine calls its weights, and nothing else."""
        await self.call("/update_weight_version", {"new_version": name, "abort_all_requests": False})

    async def releases_memory(self) -> bool:
        """Whether the engine can give its memory away: it was started with SGLang's memory saver."""
        return bool((await self._request("GET", "/server_info", None, self._call_s)).get("enable_memory_saver"))

    async def release_memory(self) -> None:
        """Give GPU memory of weights and KV away; the engine must be idle. Their contents are lost."""
        await self.call("/release_memory_occupation", {})

    async def restore_memory(self) -> None:
        """Take memory again; the weights in it are not valid until they are given."""
        await self.call("/resume_memory_occupation", {})

    async def call(self, path: str, body: Mapping[str, Any], within_s: float | None = None) -> None:
        """Post to an endpoint that changes something.

        Raises:
            ControlError: as the class of it says.
        """
        answer = await self._request("POST", path, body, self._call_s if within_s is None else within_s)
        if answer.get("success") is False:
            raise ControlRefusedError(f"{self.name}{path}: {answer.get('message', 'no success')}")

    async def _request(self, method: str, path: str, body: Mapping[str, Any] | None, within_s: float) -> dict[str, Any]:
        where = self.name + path
        try:
            async with asyncio.timeout(within_s), self._session.request(method, where, json=body) as response:
                data = await response.read()
        except aiohttp.ClientConnectorError as error:
            raise ControlUnreachableError(f"{where}: cannot be reached: {error}") from error
        except TimeoutError as error:
            raise ControlLostError(f"{where}: no answer in {within_s:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise ControlLostError(f"{where}: lost before it answered: {error!r}") from error
        if response.status != 200:
            text = error_text(data[:_MOST_ANSWER_BYTES].decode(errors="replace"))
            raise ControlRefusedError(f"{where}: answered {response.status}: {text}")
        return _object(data)


def _object(data: bytes) -> dict[str, Any]:
    """Read an answer; some endpoints answer 200 with nothing or with a sentence."""
    try:
        answer = orjson.loads(data)
    except orjson.JSONDecodeError:
        return {}
    return answer if isinstance(answer, dict) else {}
