"""The proxy as harnesses see it: an ASGI application.

Bare ASGI, for the sake of what is done for every token; everything about a protocol is in its `Wire`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import orjson

from .bodies import Bodies, BodiesFullError, BodyTooSlowError
from .call import StopReason
from .call_runner import LOG_FAILS, calls_take
from .call_state import CallState
from .calls import Calls
from .conversation import Request
from .conversations import Conversations
from .counts import require_counts
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
_NO_METHOD: Final = Failure("invalid_request", "no such method here; the header allow says which")
_ENCODED: Final = Failure("invalid_request", "the body is compressed; send it as it is, without content-encoding")
_SLOW: Final = Failure("invalid_request", "the body took too long to come; try again")
_FULL: Final = "the proxy is reading too many bodies; wait, then try again"
_QUICK_BYTES: Final = 1 << 20  # a body of fewer is read at once

Identify = Callable[[str, str | None], Execution | Failure]


class _RefusedError(Exception):
    """The request gets an error."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class _EncodedError(Exception):
    """The body has a content encoding."""


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
        self._bodies = Bodies(settings.bounds)
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
            except _EncodedError:
                await self._refuse(send, target.wire, _ENCODED, status=415)
            except BodyTooSlowError:
                await self._refuse(send, target.wire, _SLOW, status=408)
            except BodiesFullError:
                wait_s = self._settings.bounds.retry_after_s
                await self._refuse(send, target.wire, Failure("overloaded", _FULL, retry_after_s=wait_s))
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
                request, _ = await self._request(target, headers, receive)
                await answer(send, 200, token_count(await self._conversations.count(request)))
            case Ask.MODELS:
                self._admitted(target, headers)
                await answer(send, 200, _models(self._settings.model))
            case Ask.HELLO:
                await answer(send, 200, b"{}")
            case Ask.UPGRADE:
                await answer(send, 426, target.wire.error(Failure("invalid_request", "no web sockets here; use POST")))
            case Ask.WRONG_METHOD:
                await self._refuse(send, target.wire, _NO_METHOD, status=405, more=(("allow", target.allowed),))
            case Ask.UNKNOWN:
                raise _RefusedError(_NO_PATH)

    async def _reply(self, target: Route, headers: Mapping[str, str], receive: Receive, send: Send) -> None:
        execution = self._admitted(target, headers)
        if self._calls.unrecordable:
            raise _RefusedError(LOG_FAILS)
        request, digest = await self._request(target, headers, receive)
        call = self._calls.repeated(execution, digest)
        if call is None:
            if limit := execution.limit_met(self._loop.time()):
                await self._farewell(execution, limit, target.wire, request, receive, send)
                return
            if (refusal := self._refusal(execution)) is not None:
                raise _RefusedError(refusal)
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

    def _refusal(self, execution: Execution) -> Failure | None:
        """Return why no call can start now; while its body came, others may have, and the execution may have ended."""
        if execution.ended_s is not None:
            return Failure("ended", f"execution {execution.id} has ended; stop here")
        if self._calls.unrecordable:
            return LOG_FAILS
        if limit := execution.steps_taken() or execution.tokens_taken():
            return calls_take(limit, self._settings.bounds.retry_after_s)
        return self._executions.room(execution, len(self._calls))

    async def _request(self, target: Route, headers: Mapping[str, str], receive: Receive) -> tuple[Request, str]:
        """Return the request and its digest; a large one is read in a thread, so that other streams go on."""
        if headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
            raise _EncodedError

        def read() -> tuple[Request, str]:
            body = read_json(raw)
            request = require_counts(target.wire.parse(body, headers))
            return request, request_digest(target.wire.name, body, raw, request)

        async with self._bodies.read(receive, headers) as raw:
            return read() if len(raw) <= _QUICK_BYTES else await asyncio.to_thread(read)

    async def _refuse(
        self,
        send: Send,
        wire: Wire,
        failure: Failure,
        *,
        status: int | None = None,
        more: Sequence[tuple[str, str]] = (),
    ) -> None:
        self._metrics.refusals.labels(failure.kind).inc()
        # Without the message: it may repeat what stands in the body.
        _log.info("a request is refused", extra={"protocol": wire.name, "kind": failure.kind})
        await refuse(self._counted(wire, send), wire, failure, status=status, more=more)

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
