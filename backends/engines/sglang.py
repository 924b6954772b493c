"""An SGLang server as an engine: its native `/generate` by token ids, streamed."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

# aiohttp for its parser in C: hundreds of streams of small chunks cost a fraction of what they do with httpx.
import aiohttp
import orjson

from .engine import Chunk, EngineInfo, EngineLostError, EngineUnreachableError, Generation, RequestRefusedError
from .error_text import error_text
from .same_model import ModelMarks, SameModel
from .sglang_stream import EventLines, ReplyReader

_log = logging.getLogger(__name__)
_VERSION: Final = re.compile(r"[vV]?(\d+)")
_MOST_VERSION: Final = (1 << 31) - 1  # int32
_REFUSALS: Final = (400, 401, 403, 404, 405, 413, 422)
_BUSY: Final = (429, 502, 503, 504)
_MOST_ERROR_BYTES: Final = 16_384


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for an engine, in seconds. A reply as a whole may take for ever."""

    connect_s: float = 5.0
    silence_s: float = 60.0  # the most without a byte before the engine is asked whether it lives
    probe_s: float = 30.0  # for the answer to that: long enough for a prefill or an update of weights in between
    health_s: float = 10.0


_PATIENCE: Final = Patience()


class SGLangEngine:
    """A server by its address, such as "http://10.0.0.7:30000". To be made where an event loop runs.

    Log-probs are of the logits over the temperature, as SGLang gives them: before top-p and top-k cut tokens off.
    Weights are told apart by the server's `weight_version`: "12" or "v12" is 12. With `marks`, a server of another
    model is no engine that can be used.
    """

    def __init__(
        self, url: str, *, key: str = "", patience: Patience = _PATIENCE, marks: ModelMarks | None = None
    ) -> None:
        self.name = url.rstrip("/")
        self._patience = patience
        self._same = SameModel(self.name, marks)
        self._session = aiohttp.ClientSession(
            # No limit: the pool bounds what runs. Connections outlive a pause between an agent's calls.
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60.0),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=patience.connect_s),
            headers={"Authorization": f"Bearer {key}"} if key else {},
        )
        self._aborts: set[asyncio.Task[None]] = set()
        self._probe: asyncio.Task[bool] | None = None
        self._unnumbered: set[str] = set()
        self._told_cumulative = False

    async def generate(self, generation: Generation) -> AsyncGenerator[Chunk, None]:
        """See `Engine.generate`."""
        # SGLang aborts every request whose id begins with the one that it is given; the end mark keeps them apart.
        rid = f"{generation.request_id};"
        reader = ReplyReader(self._version_number, generation.sampling.max_new_tokens)
        running = True
        try:
            async with aclosing(self._events(_body(generation, rid))) as events:
                async for payload in events:
                    chunk = reader.read(payload)
                    running = chunk.finish is None
                    if chunk.token_ids or not running:
                        yield chunk
                    if not running:
                        return
            raise EngineLostError(f"{self.name} ended its stream before the reply's end")
        except (RequestRefusedError, EngineUnreachableError):
            running = False
            raise
        finally:
            if running:
                self._abort(rid)

    async def info(self) -> EngineInfo:
        """See `Engine.info`."""
        server, model = await asyncio.gather(self._get("/server_info"), self._get("/model_info"))
        if server.get("incremental_streaming_output") is False and not self._told_cumulative:
            self._told_cumulative = True
            _log.warning("%s runs without --incremental-streaming-output: it repeats a reply in every event", self.name)
        replicas = int(server.get("dp_size") or 1)
        try:
            running = server.get("max_running_requests")
            if running is None:
                running = replicas * server["internal_states"][0]["effective_max_running_requests_per_dp"]
            unproven = await self._same.unproven(server, model, self._tokenized)
            return EngineInfo(
                model=str(model.get("served_model_name") or model["model_path"]),
                kv_tokens=replicas * int(server["max_total_num_tokens"]),
                max_running=int(running),
                max_context_tokens=int(server["max_req_input_len"]),
                version=self._version_number(model.get("weight_version")),
                unproven=unproven,
            )
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise EngineLostError(f"{self.name} does not say what it is: {error!r}") from error

    async def healthy(self) -> bool:
        """See `Engine.healthy`. SGLang generates a token for this, or sees that others are being generated."""
        return await self._answers("/health", self._patience.health_s)

    async def close(self) -> None:
        """See `Engine.close`."""
        if self._probe is not None:
            self._probe.cancel()
        if self._aborts:
            await asyncio.wait(self._aborts, timeout=self._patience.connect_s)
        await self._session.close()

    async def _events(self, body: bytes) -> AsyncGenerator[bytes, None]:
        try:
            async with asyncio.timeout(self._patience.silence_s):
                response = await self._session.post(
                    f"{self.name}/generate", data=body, headers={"Content-Type": "application/json"}
                )
        except aiohttp.ClientConnectorError as error:
            raise EngineUnreachableError(f"{self.name} cannot be reached: {error}") from error
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise EngineLostError(f"{self.name} was lost before it answered: {error!r}") from error
        watch = asyncio.create_task(self._watch(response.content))
        try:
            if response.status != 200:
                raise await self._refusal(response)
            events = EventLines()
            while data := await response.content.readany():
                for payload in events.feed(data):
                    if payload != b"[DONE]":
                        yield payload
        except (aiohttp.ClientError, OSError) as error:
            raise EngineLostError(f"{self.name} was lost: {error!r}") from error
        finally:
            watch.cancel()
            response.close()

    async def _watch(self, content: aiohttp.StreamReader) -> None:
        """Break a reply off that stays silent. A paused engine may do so for as long as it likes, a dead one may not.

        It looks twice in `silence_s`, beside the reading: a timeout around each read costs more than the reading.
        """
        heard = -1
        while True:
            if content.total_bytes == heard and not await self._lives() and content.total_bytes == heard:
                content.set_exception(EngineLostError(f"{self.name} was silent, and does not answer"))
                return
            heard = content.total_bytes
            await asyncio.sleep(self._patience.silence_s / 2)

    async def _lives(self) -> bool:
        """Ask the engine, once for all replies that are silent."""
        if self._probe is None or self._probe.done():
            # Not /health, which a paused server fails: this asks its scheduler for an answer, and no token.
            self._probe = asyncio.create_task(self._answers("/server_info", self._patience.probe_s))
        return await asyncio.shield(self._probe)

    async def _refusal(self, response: aiohttp.ClientResponse) -> Exception:
        try:
            text = error_text((await response.content.read(_MOST_ERROR_BYTES)).decode(errors="replace"))
        except (aiohttp.ClientError, OSError) as error:
            text = repr(error)
        if response.status in _REFUSALS:
            return RequestRefusedError(f"the engine answered {response.status}: {text}")
        if response.status in _BUSY:
            return EngineUnreachableError(f"{self.name} takes no request now ({response.status}): {text}")
        return EngineLostError(f"{self.name} answered {response.status}: {text}")

    async def _get(self, path: str) -> dict[str, Any]:
        try:
            async with asyncio.timeout(self._patience.health_s), self._session.get(self.name + path) as response:
                if response.status != 200:
                    raise EngineLostError(f"{self.name}{path} answered {response.status}")
                answer = orjson.loads(await response.read())
        except (aiohttp.ClientError, OSError, TimeoutError, orjson.JSONDecodeError) as error:
            raise EngineLostError(f"{self.name}{path} does not answer: {error!r}") from error
        if not isinstance(answer, dict):
            raise EngineLostError(f"{self.name}{path} answered with no object")
        return answer

    async def _tokenized(self, text: str) -> object:
        """Return what the server says that a text's tokens are, None where it says nothing."""
        body = {"prompt": text, "add_special_tokens": False}
        try:
            async with (
                asyncio.timeout(self._patience.health_s),
                self._session.post(f"{self.name}/tokenize", json=body) as response,
            ):
                return orjson.loads(await response.read()) if response.status == 200 else None
        except (aiohttp.ClientError, OSError, TimeoutError, orjson.JSONDecodeError):
            return None

    async def _answers(self, path: str, within_s: float) -> bool:
        try:
            async with asyncio.timeout(within_s), self._session.get(self.name + path) as response:
                await response.read()
                return response.status == 200
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False

    def _abort(self, rid: str) -> None:
        """Tell the engine on the side: who closes a stream does not wait, and may itself be cancelled."""
        task = asyncio.get_running_loop().create_task(self._send_abort(rid))
        self._aborts.add(task)
        task.add_done_callback(self._aborts.discard)

    async def _send_abort(self, rid: str) -> None:
        try:
            async with asyncio.timeout(self._patience.health_s):
                await (await self._session.post(f"{self.name}/abort_request", json={"rid": rid})).read()
        except (aiohttp.ClientError, OSError, TimeoutError, RuntimeError) as error:
            _log.debug("%s could not be told to abort: %r", self.name, error)

    def _version_number(self, said: object) -> int:
        name = str(said)
        if match := _VERSION.fullmatch(name):
            number = int(match[1])
            if number > _MOST_VERSION:
                raise ValueError("a version beyond int32")
            return number
        if name not in self._unnumbered:
            self._unnumbered.add(name)
            _log.warning("%s calls its weights %r, which is no number: recorded as version -1", self.name, name)
        return -1


def _body(generation: Generation, rid: str) -> bytes:
    sampling = generation.sampling
    settings = {
        "max_new_tokens": sampling.max_new_tokens,
        "min_new_tokens": sampling.min_new_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "stop_token_ids": list(sampling.stop_token_ids),
        "stop": list(sampling.stop),
        **({} if sampling.seed is None else {"sampling_seed": sampling.seed}),
        **sampling.constraint,
    }
    body = {
        "rid": rid,
        "input_ids": generation.input_ids.tolist(),
        "sampling_params": settings,
        "stream": True,
        "return_logprob": True,
        "logprob_start_len": -1,  # none of the input's
    }
    return orjson.dumps(body)
