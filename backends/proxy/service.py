"""The proxy as harnesses see it: an ASGI application.

Bare ASGI, for the sake of what is done for every token; everything about a protocol is in its `Wire`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from .call import StopReason
from .call_state import CallState
from .calls import Calls
from .conversation import Request
from .conversations import Conversations
from .counts import surely_too_long
from .delivery import Delivery, Outcome, refuse
from .execution import Execution
from .executions import Executions
from .farewell import farewell
from .http_messages import ClientGoneError, KeysDifferError, Receive, Send, answer, headers_of, key_of
from .labels import call_labels
from .metrics import Metrics
from .models_page import models_page
from .paths import Ask, Route, route
from .refusals import LOG_FAILS, RefusedError, calls_take, too_long
from .reply import Failure
from .request_reader import RequestReader
from .settings import ProxySettings
from .transcript import Transcript
from .wire import BadRequestError, Wire
from .wires import token_count

_log = logging.getLogger(__name__)
_NO_PATH: Final = Failure("not_found", "no such path; use …/v1/chat/completions, …/v1/messages or …/v1/responses")
_NO_METHOD: Final = Failure("invalid_request", "no such method here; the header allow says which")
_KEYS_DIFFER: Final = Failure("unauthorized", "the request carries keys that differ; send one, as Bearer or x-api-key")
_FAULT: Final = Failure("internal", "the proxy failed; its log says how")

Identify = Callable[[str, str | None], Execution | Failure]


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
        self._reader = RequestReader(settings.bounds)
        self._loop = asyncio.get_running_loop()

    async def close(self) -> None:
        """Let go what it reads bodies with."""
        await self._reader.close()

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        headers = headers_of(scope)
        target = route(
            scope["method"], scope["path"], upgrade="upgrade" in headers, messages_api="anthropic-version" in headers
        )
        try:
            await self._serve(target, scope, headers, receive, self._counted(target.wire, send))
        except ClientGoneError:  # nobody is there to be told
            _log.debug("a client left before its request was whole", extra={"protocol": target.wire.name})
        except RefusedError as refused:
            await self._refuse(send, target.wire, refused)
        except (BadRequestError, RecursionError) as error:
            await self._refuse(send, target.wire, RefusedError(Failure("invalid_request", str(error))))
        except Exception:  # a fault of the proxy's own: where a reply has begun, the server breaks it off
            _log.exception("a request failed", extra={"protocol": target.wire.name})
            await self._refuse(send, target.wire, RefusedError(_FAULT))

    async def _serve(
        self, target: Route, scope: Mapping[str, Any], headers: Mapping[str, str], receive: Receive, send: Send
    ) -> None:
        match target.ask:
            case Ask.REPLY:
                await self._reply(target, self._admitted(target, scope), headers, receive, send)
            case Ask.COUNT:
                self._admitted(target, scope)
                await answer(send, 200, token_count(await self._count(target.wire, headers, receive)))
            case Ask.MODELS:
                self._admitted(target, scope)
                await answer(send, 200, models_page(self._settings.model))
            case Ask.HELLO:
                await answer(send, 200, b"{}")
            case Ask.UPGRADE:
                await answer(send, 426, target.wire.error(Failure("invalid_request", "no web sockets here; use POST")))
            case Ask.WRONG_METHOD:
                raise RefusedError(_NO_METHOD, status=405, headers=(("allow", target.allowed),))
            case Ask.UNKNOWN:
                raise RefusedError(_NO_PATH)

    async def _count(self, wire: Wire, headers: Mapping[str, str], receive: Receive) -> int:
        request, _ = await self._read(wire, headers, receive)
        return await self._conversations.count(request)

    async def _read(self, wire: Wire, headers: Mapping[str, str], receive: Receive) -> tuple[Request, str]:
        """Return a request that may fit into the context, and its digest: a text that cannot is looked at no more."""
        request, digest = await self._reader.read(wire, headers, receive)
        context = self._calls.context_tokens()
        if context is not None and (tokens := surely_too_long(request, context)) is not None:
            raise RefusedError(too_long(tokens, context, at_least=True))
        return request, digest

    async def _reply(
        self, target: Route, execution: Execution, headers: Mapping[str, str], receive: Receive, send: Send
    ) -> None:
        if self._calls.unrecordable:
            raise RefusedError(LOG_FAILS)
        request, digest = await self._read(target.wire, headers, receive)
        call = self._calls.repeated(execution, digest)
        if call is None:
            if limit := execution.limit_met(self._loop.time()):
                await self._farewell(execution, limit, target.wire, request, receive, send)
                return
            if (refusal := self._refusal(execution)) is not None:
                raise RefusedError(refusal)
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
            raise RefusedError(last)
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

    def _admitted(self, target: Route, scope: Mapping[str, Any]) -> Execution:
        """Return the execution that a request is for, if it may call now."""
        try:
            execution = self._identify(key_of(scope), target.execution)
        except KeysDifferError as error:
            raise RefusedError(_KEYS_DIFFER) from error
        if isinstance(execution, Failure):
            raise RefusedError(execution)
        if (failure := self._executions.admit(execution, self._loop.time(), len(self._calls))) is not None:
            raise RefusedError(failure)
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

    async def _refuse(self, send: Send, wire: Wire, refused: RefusedError) -> None:
        failure = refused.failure
        self._metrics.refusals.labels(failure.kind).inc()
        # Without the message: it may repeat what stands in the body.
        _log.info("a request is refused", extra={"protocol": wire.name, "kind": failure.kind})
        await refuse(self._counted(wire, send), wire, failure, status=refused.status, more=refused.headers)

    def _counted(self, wire: Wire, send: Send) -> Send:
        requests = self._metrics.requests

        async def counted(message: Any) -> None:
            if message["type"] == "http.response.start":
                requests.labels(wire.name, message["status"]).inc()
            await send(message)

        return counted
