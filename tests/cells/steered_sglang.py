"""SGLang's endpoints that steer a server, scripted to misbehave; no model behind them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

CHANGES = "/update_weights_from_disk"


@dataclass
class SteeredSglang:
    """A server on a free port. `refuses` and `loses` name endpoints; `changes_all_the_same` is what SGLang may do."""

    version: str = "0"
    refuses: dict[str, int] = field(default_factory=dict)  # endpoint -> times
    loses: dict[str, int] = field(default_factory=dict)  # the connection is cut after the work
    hangs: set[str] = field(default_factory=set)
    changes_all_the_same: bool = False
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    paused: bool = False
    session: bool = False
    changed_unpaused: bool = False
    url: str = ""

    async def __aenter__(self) -> SteeredSglang:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    @property
    def asked(self) -> list[str]:
        return [path for path, _ in self.calls]

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json() if request.can_read_body else {}
        self.calls.append((request.path, body))
        if request.path in self.hangs:
            await asyncio.sleep(3600)
        refused = self._once(self.refuses, request.path)
        if not refused or self.changes_all_the_same:
            self._do(request.path, body)
        if self._once(self.loses, request.path):
            assert request.transport is not None
            request.transport.abort()
        if request.path == "/model_info":
            return web.json_response({"weight_version": self.version})
        status = 400 if refused else 200
        return web.json_response({"success": not refused, "message": "scripted"}, status=status)

    @staticmethod
    def _once(table: dict[str, int], path: str) -> bool:
        left = table.get(path, 0)
        table[path] = left - 1
        return left > 0

    def _do(self, path: str, body: dict[str, Any]) -> None:
        match path:
            case "/pause_generation":
                self.paused = True
            case "/continue_generation":
                self.paused = False
            case "/begin_weight_update":
                self.session = True
            case "/end_weight_update":
                self.session = False
            case "/update_weight_version":
                self.version = body["new_version"]
            case _ if path == CHANGES:
                self.changed_unpaused |= not self.paused or not self.session
                self.version = body["weight_version"]
