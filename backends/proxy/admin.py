"""The proxy's other side: executions are opened and ended here, and metrics read."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gyre.errors import InputError
from gyre.outcome import Outcome

from .executions import KEY, NAME
from .http_messages import KeysDifferError, key_of
from .limits import Limits
from .recorder import LogUnwritableError

if TYPE_CHECKING:
    from .proxy import Proxy

_METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_MOST_CHARACTERS: Final = 1000
_MOST_BYTES: Final = 1 << 20


class _Limits(BaseModel):
    model_config = ConfigDict(extra="forbid")

    steps: int | None = Field(None, ge=1)
    tokens: int | None = Field(None, ge=1)
    seconds: float | None = Field(None, gt=0)


class _Opening(BaseModel):
    model_config = ConfigDict(extra="forbid")

    id: str | None = Field(None, pattern=NAME)
    key: str | None = Field(None, pattern=KEY)
    group: str = Field("", max_length=_MOST_CHARACTERS)
    harness: str = Field("", max_length=_MOST_CHARACTERS)
    task: str = Field("", max_length=_MOST_CHARACTERS)
    limits: _Limits | None = None


class _Ending(BaseModel):
    model_config = ConfigDict(extra="forbid")

    score: float | None = Field(None, allow_inf_nan=False)
    outcome: Outcome | None = None


def admin_app(proxy: Proxy, key: str | None) -> Starlette:
    """Return the application. With `key`, only requests that carry it are answered.

    POST /executions opens one, GET /executions lists the open ones, POST /executions/ID/end ends one, GET /metrics has
    Prometheus's text, GET /health says that the proxy runs.
    """
    guarded = _Guard(proxy, key)
    return Starlette(
        routes=[
            Route("/executions", guarded(_open), methods=["POST"]),
            Route("/executions", guarded(_list), methods=["GET"]),
            Route("/executions/{execution}/end", guarded(_end), methods=["POST"]),
            Route("/metrics", guarded(_metrics), methods=["GET"]),
            Route("/health", guarded(_health), methods=["GET"]),
        ]
    )


class _Guard:
    def __init__(self, proxy: Proxy, key: str | None) -> None:
        self._proxy = proxy
        self._key = key

    def __call__(self, handle: Callable[[Proxy, Request, bytes], Any]) -> Callable[[Request], Any]:
        async def guarded(request: Request) -> Response:
            if self._key is None and "origin" in request.headers:  # a page of some other site, in this user's browser
                return JSONResponse({"error": "pages in browsers may not call; give the admin side a key"}, 403)
            if self._key is not None and not hmac.compare_digest(_carried(request), self._key.encode()):
                return JSONResponse({"error": "the admin key is missing or wrong"}, 401)
            try:
                body = await _body(request)
                if body is None:
                    return JSONResponse({"error": f"the body has more than {_MOST_BYTES} bytes"}, 413)
                answer: Response = await handle(self._proxy, request, body)
            except ValidationError as error:
                first = error.errors(include_url=False, include_input=False)[0]
                return JSONResponse({"error": f"{'.'.join(map(str, first['loc'])) or 'body'}: {first['msg']}"}, 400)
            except LogUnwritableError as error:
                return JSONResponse({"error": str(error)}, 507)
            except InputError as error:
                return JSONResponse({"error": str(error)}, 409)
            return answer

        return guarded


async def _body(request: Request) -> bytes | None:
    """Return the body, None where it is too large."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _MOST_BYTES:
            return None
    return body


def _carried(request: Request) -> bytes:
    try:
        return key_of(request.scope).encode()
    except KeysDifferError:
        return b""


async def _open(proxy: Proxy, request: Request, body: bytes) -> Response:
    wanted = _Opening.model_validate_json(body or b"{}")
    limits = None if wanted.limits is None else Limits(**wanted.limits.model_dump())
    opened = proxy.open_execution(
        wanted.id,
        key=wanted.key,
        group=wanted.group,
        harness=wanted.harness,
        task=wanted.task,
        limits=limits,
        remember=True,
    )
    return JSONResponse({"id": opened.id, "base_url": opened.base_url, "key": opened.key}, 201)


async def _list(proxy: Proxy, request: Request, body: bytes) -> Response:
    return JSONResponse({"executions": proxy.executions()})


async def _end(proxy: Proxy, request: Request, body: bytes) -> Response:
    wanted = _Ending.model_validate_json(body or b"{}")
    outcome = "" if wanted.outcome is None else wanted.outcome.value
    record = await proxy.end_execution(request.path_params["execution"], score=wanted.score, outcome=outcome)
    return JSONResponse({"id": record.execution, "score": record.score, "outcome": record.outcome})


async def _metrics(proxy: Proxy, request: Request, body: bytes) -> Response:
    return Response(proxy.metrics.text(), media_type=_METRICS_TYPE)


async def _health(proxy: Proxy, request: Request, body: bytes) -> Response:
    return JSONResponse({"engines": {name: str(state) for name, state in proxy.pool.members().items()}})
