"""An engine of another model is no engine, though its vocabulary is as large; one that cannot be told is told of."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="engines are reached with aiohttp")
from aiohttp import web
from engine_faults import serving, until

from gyre.backends.engines.engine import WrongModelError
from gyre.backends.engines.member import Checks, MemberState
from gyre.backends.engines.pool import EnginePool
from gyre.backends.engines.same_model import ModelMarks
from gyre.backends.engines.sglang import SGLangEngine

SIZE = {"hidden_size": 64, "num_hidden_layers": 2}
MARKS = ModelMarks((5, 6, 7), SIZE)


class Server:
    """Says of itself what it is told to say."""

    def __init__(self, model_path: Path | str, tokens: object, startup_time: float = 1.0) -> None:
        self.model_path, self.tokens, self.startup_time = str(model_path), tokens, startup_time
        self.asked = 0

    def application(self) -> web.Application:
        application = web.Application()
        application.add_routes(
            [
                web.get("/server_info", self._info),
                web.get("/model_info", self._info),
                web.post("/tokenize", self._tokenize),
                web.get("/health", self._health),
            ]
        )
        return application

    async def _info(self, request: web.Request) -> web.Response:
        sizes = {"max_total_num_tokens": 100, "max_running_requests": 4, "max_req_input_len": 50}
        said = {"model_path": self.model_path, "startup_time": self.startup_time, "weight_version": "v1"}
        return web.json_response({**said, **sizes})

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response()

    async def _tokenize(self, request: web.Request) -> web.Response:
        self.asked += 1
        assert (await request.json())["add_special_tokens"] is False
        return web.Response(status=404) if self.tokens is None else web.json_response({"tokens": self.tokens})


def model(folder: Path, config: dict[str, Any]) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


async def unproven(server: Server, marks: ModelMarks = MARKS) -> bool:
    async with serving(server.application()) as url:
        engine = SGLangEngine(url, marks=marks)
        try:
            return (await engine.info()).unproven
        finally:
            await engine.close()


def test_what_agrees_is_taken_and_what_cannot_be_told_is_taken_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    same = model(tmp_path / "same", {"model_type": "any", "text_config": {**SIZE, "vocab_size": 9}})
    with caplog.at_level(logging.WARNING):
        assert asyncio.run(unproven(Server(same, [5, 6, 7]))) is False
        assert asyncio.run(unproven(Server("/of/another/machine", [5, 6, 7]))) is False
        assert asyncio.run(unproven(Server(same, None))) is False
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        assert asyncio.run(unproven(Server("/of/another/machine", None))) is True
    assert "serves /of/another/machine: whether that is the right model cannot be told" in caplog.text


@pytest.mark.parametrize("answer", [{"tokens": []}, {"tokens": "no"}, {}, [], None, "text"])
def test_an_answer_that_is_none_says_nothing(answer: object) -> None:
    assert MARKS.tokenizer_agrees(answer) is None


def test_another_model_is_no_engine(tmp_path: Path) -> None:
    larger = model(tmp_path / "larger", {**SIZE, "num_hidden_layers": 48})
    with pytest.raises(WrongModelError, match="another model than requests are made for: its network has another size"):
        asyncio.run(unproven(Server(larger, [5, 6, 7])))
    with pytest.raises(WrongModelError, match="another model than requests are made for: its tokenizer"):
        asyncio.run(unproven(Server("/of/another/machine", [5, 6, 8])))


def test_a_server_is_looked_at_once_and_again_when_it_is_another(tmp_path: Path) -> None:
    async def run() -> None:
        server = Server("/of/another/machine", [5, 6, 7])
        async with serving(server.application()) as url:
            engine = SGLangEngine(url, marks=MARKS)
            for _ in range(3):
                await engine.info()
            assert server.asked == 1
            server.tokens, server.startup_time = [1], 2.0  # started again, with another model
            for _ in range(2):
                with pytest.raises(WrongModelError):
                    await engine.info()
            server.tokens = [5, 6, 7]
            await engine.info()
            assert server.asked == 4
            await engine.close()

    asyncio.run(run())


def test_an_engine_that_loads_another_model_gets_no_more_requests(tmp_path: Path) -> None:
    """It is well, and one that is busy and does not say what it is counts as what it was; this one says it."""

    async def run() -> None:
        server = Server("/of/another/machine", [5, 6, 7])
        async with serving(server.application()) as url, EnginePool(checks=Checks(0.02, 0.02, 0.02)) as pool:
            engine = SGLangEngine(url, marks=MARKS)
            pool.add(engine)
            await until(lambda: pool.members()[url] is MemberState.SERVING)
            server.model_path, server.tokens = str(model(tmp_path / "other", {"hidden_size": 65})), None
            await until(lambda: pool.members()[url] is MemberState.LOST)
            assert "another model" in pool.problem(url)

    asyncio.run(run())
