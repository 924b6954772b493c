"""The proxy as harnesses see it: an ASGI application.

Bare ASGI, for the sake of what is done for every token; everything about a protocol is in its `Wire`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import orjson

from .call import StopReason
from .call_state import CallState
from .calls import Calls
from .conversation import Request
from .conversations import Conversations
from .delivery import Delivery, Outcome, refuse
from .execution import Execution
from .executions import Executions
from .farewell import farewell
from .http_messages import (
    BodyTooLargeError,
    ClientGoneError,
    Receive,
    Send,
    answer,
    headers_of,
    key_of,
    read_body,
)
from .labels import call_labels
from .metrics import Metrics
from .paths import Ask, Route, route
from .reply import Failure
from .request_digest import request_digest
from .settings import ProxySettings
from .transcript import Transcript
from .wire import BadRequestError, Wire
from .wires import read_json, token_count

_log = logging.getLogger(__name__)
_NO_PATH: Final = Failure("not_found", "no such path; use …/v1/chat/completions, …/v1/messages or …/v1/responses")
_NO_METHOD: Final = Failure("not_found", "no such method here; use POST")

Identify = Callable[[str, str | None], Execution | Failure]


class _RefusedError(Exception):
    """The request gets an error."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class ProxyService:
    """Answers harnesses. `identify` tells by key and by the path's execution for which execution a request calls."""

    def __init__(
        self,
        identify: Identify,
        executions: Executions,
        calls: Calls,
        conversations: Conversations,
        metrics: Metrics,
        settings: ProxySettings,
    ) -> None:
        self._identify = identify
        self._executions = executions
        self._calls = calls
        self._conversations = conversations
        self._metrics = metrics
        self._settings = settings
        self._loop = asyncio.get_running_loop()

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        headers = headers_of(scope)
        target = route(
            scope["method"], scope["path"], upgrade="upgrade" in headers, messages_api="anthropic-version" in headers
        )
        with suppress(ClientGoneError):
            try:
                await self._serve(target, headers, receive, self._counted(target.wire, send))
            except _RefusedError as refused:
                await self._refuse(send, target.wire, refused.failure)
            except BodyTooLargeError:
                most = self._settings.bounds.body_bytes
                await self._refuse(send, target.wire, Failure("too_large", f"the body has more than {most} bytes"))
            except (BadRequestError, RecursionError) as error:
                await self._refuse(send, target.wire, Failure("invalid_request", str(error)))
            except Exception:  # a fault of the proxy's own: where a reply has begun, the server breaks it off
                _log.exception("a request failed", extra={"protocol": target.wire.name})
                await self._refuse(send, target.wire, Failure("internal", "the proxy failed; its log says how"))

    async def _serve(self, target: Route, headers: Mapping[str, str], receive: Receive, send: Send) -> None:
        match target.ask:
            case Ask.REPLY:
                await self._reply(target, headers, receive, send)
            case Ask.COUNT:
                self._admitted(target, headers)
                request = target.wire.parse(read_json(await self._body(receive, headers)), headers)
                await answer(send, 200, token_count(await self._conversations.count(request)))
            case Ask.MODELS:
                self._admitted(target, headers)
                await answer(send, 200, _models(self._settings.model))
            case Ask.HELLO:
                await answer(send, 200, b"{}")
            case Ask.UPGRADE:
                await answer(send, 426, target.wire.error(Failure("invalid_request", "no web sockets here; use POST")))
            case Ask.WRONG_METHOD:
                raise _RefusedError(_NO_METHOD)
            case Ask.UNKNOWN:
                raise _RefusedError(_NO_PATH)

    async def _reply(self, target: Route, headers: Mapping[str, str], receive: Receive, send: Send) -> None:
        execution = self._admitted(target, headers)
        raw = await self._body(receive, headers)
        body = read_json(raw)
        request = target.wire.parse(body, headers)
        digest = request_digest(target.wire.name, body, raw, request)
        call = self._calls.repeated(execution, digest)
        if call is None:
            if limit := execution.limit_met(self._loop.time()):
                await self._farewell(execution, limit, target.wire, request, receive, send)
                return
            call = self._calls.start(execution, target.wire.name, digest, request)
        call.audience.join()
        try:
            outcome = await self._deliver(call.transcript, target.wire, request, call.id, receive, send)
        finally:
            call.audience.leave(self._settings.linger_s, lambda: call.stop(StopReason.CLIENT_GONE))
        if outcome is Outcome.WHOLE and call.state is not CallState.DELIVERED:
            call.move(CallState.DELIVERED)
        elif outcome is Outcome.GONE and call.state is CallState.RECORDED:
            call.move(CallState.ABORTED)

    async def _farewell(
        self, execution: Execution, limit: str, wire: Wire, request: Request, receive: Receive, send: Send
    ) -> None:
        """Tell a harness that its execution is over."""
        harness = call_labels(request, execution.info.harness).harness
        last = farewell(execution, harness, limit, self._settings.farewells)
        if isinstance(last, Failure):
            raise _RefusedError(last)
        self._metrics.farewells.inc()
        _log.info("an execution is told to stop", extra={"execution": execution.id, "reason": limit})
        await self._deliver(last, wire, request, f"farewell-{execution.farewells}", receive, send)

    async def _deliver(
        self, transcript: Transcript, wire: Wire, request: Request, reply_id: str, receive: Receive, send: Send
    ) -> Outcome:
        delivery = Delivery(
            transcript,
            wire,
            wire.encoder(request, reply_id, int(time.time())),
            send,
            keep_alive_s=self._settings.keep_alive_s,
            on_lag=self._metrics.lag.observe,
        )
        outcome = await delivery.run(receive, stream=request.stream)
        self._metrics.deliveries.labels(outcome).inc()
        return outcome

    def _admitted(self, target: Route, headers: Mapping[str, str]) -> Execution:
        """Return the execution that a request is for, if it may call now."""
        execution = self._identify(key_of(headers), target.execution)
        if isinstance(execution, Failure):
            raise _RefusedError(execution)
        if (failure := self._executions.admit(execution, self._loop.time(), len(self._calls))) is not None:
            raise _RefusedError(failure)
        return execution

    async def _body(self, receive: Receive, headers: Mapping[str, str]) -> bytes:
        return await read_body(receive, headers, self._settings.bounds.body_bytes)

    async def _refuse(self, send: Send, wire: Wire, failure: Failure) -> None:
        self._metrics.refusals.labels(failure.kind).inc()
        _log.info("a request is refused: %s", failure.message, extra={"protocol": wire.name, "kind": failure.kind})
        await refuse(self._counted(wire, send), wire, failure)

    def _counted(self, wire: Wire, send: Send) -> Send:
        requests = self._metrics.requests

        async def counted(message: Any) -> None:
            if message["type"] == "http.response.start":
                requests.labels(wire.name, message["status"]).inc()
            await send(message)

        return counted


def _models(model: str) -> bytes:
    """Return the list of models, in a form that OpenAI's and Anthropic's clients both read."""
    one = {
        "id": model, "object": "model", "created": 0, "owned_by": "gyre", "type": "model", "display_name": model,
        "created_at": "1970-01-01T00:00:00Z",
    }  # fmt: skip
    page = {"object": "list", "data": [one], "has_more": False, "first_id": model, "last_id": model}
    return orjson.dumps(page)
