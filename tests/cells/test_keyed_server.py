"""An engine that is reached from elsewhere asks for a key, and nobody on its machine can read it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("orjson", reason="the engine's requests are JSON by orjson")
pytest.importorskip("aiohttp", reason="a cell's engine is steered by aiohttp")

from gyre.backends.cells.server import local_launch
from gyre.backends.engines.engine import EngineInfo, EngineLostError
from gyre.backends.engines.launching import ServerSettings
from gyre.backends.engines.sglang import SGLangEngine
from gyre.backends.publishing.control import ControlRefusedError, EngineControl
from gyre.backends.publishing.weights import on_disk

KEY = "a-key-that-nobody-may-see"
SCRIPTED = Path(__file__).parents[1] / "deploy" / "scripted_sglang"


def test_a_server_with_a_key_is_steered_with_it_alone(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    settings = ServerSettings(Path("nowhere"), log, environment={"PYTHONPATH": str(SCRIPTED)}, key=KEY)
    assert KEY not in repr(settings)

    async def run() -> None:
        server = await local_launch(settings, ready_s=60.0)(on_disk(3, tmp_path))
        try:
            assert server.key == KEY
            for said in ("cmdline", "environ"):
                assert KEY.encode() not in Path(f"/proc/{server.pid}/{said}").read_bytes()
            assert log.stat().st_mode & 0o077 == 0, "SGLang writes its settings there"
            assert (await info(server.url, KEY)).version == 3
            assert await version(server.url, KEY) == "3"
            for other in ("", "another"):
                with pytest.raises(EngineLostError, match="401"):
                    await info(server.url, other)
                with pytest.raises(ControlRefusedError):
                    await version(server.url, other)
        finally:
            await server.end()

    asyncio.run(run())


async def info(url: str, key: str) -> EngineInfo:
    engine = SGLangEngine(url, key=key)
    try:
        return await engine.info()
    finally:
        await engine.close()


async def version(url: str, key: str) -> str:
    control = EngineControl(url, key=key)
    try:
        return await control.version()
    finally:
        await control.close()
