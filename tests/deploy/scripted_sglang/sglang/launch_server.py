"""`python -m sglang.launch_server`: a scripted engine with the endpoints that change weights. Takes SGLang's flags."""

from __future__ import annotations

import argparse
import hmac
from typing import Any

from aiohttp import web

from gyre.backends.engines.scripted import Pace, ScriptedEngine
from gyre.backends.engines.scripted_server import ScriptedServer


def application(engine: ScriptedEngine, name: str, key: str = "") -> web.Application:
    """Return the server; `name` is what it calls its weights, `key` what requests but `/health` must bear."""
    called = [name]

    @web.middleware
    async def steered(request: web.Request, handler: Any) -> web.StreamResponse:
        bears = hmac.compare_digest(request.headers.get("Authorization", ""), f"Bearer {key}")
        if key and not bears and request.path != "/health":
            return web.Response(status=401)
        match request.path:
            case "/model_info":
                return web.json_response({"served_model_name": "scripted", "weight_version": called[0]})
            case "/update_weights_from_disk":
                called[0] = (await request.json())["weight_version"]
                engine.publish(int(called[0]))
            case "/update_weight_version":
                called[0] = (await request.json())["new_version"]
            case "/begin_weight_update" | "/end_weight_update":
                pass
            case _:
                answer: web.StreamResponse = await handler(request)
                return answer
        return web.json_response({"success": True})

    app = ScriptedServer(engine).application()
    app.middlewares.append(steered)
    app.router.add_route("*", "/{path:.*}", lambda request: web.json_response({}, status=404))
    return app


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--api-key", default="")
    parser.add_argument("--weight-version", required=True)
    parser.add_argument("--tokens-per-s", type=float, default=100.0)
    given, _ = parser.parse_known_args()
    engine = ScriptedEngine("scripted", pace=Pace(given.tokens_per_s, 4))
    engine.publish(int(given.weight_version))
    app = application(engine, given.weight_version, given.api_key)
    web.run_app(app, host=given.host, port=given.port, print=None)


if __name__ == "__main__":
    main()
