"""A model trained in megatron-core, exported, and served by a real SGLang: the same log-probs on both sides."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("sglang", reason="a real engine needs SGLang")
torch = pytest.importorskip("torch", reason="models need torch")
pytest.importorskip("megatron.core", reason="models are built with megatron-core: pip install 'gyre[real]'")
from engine_faults import asked, logprobs, reply, tokens, versions  # noqa: E402

from gyre.backends.engines.engine import Chunk  # noqa: E402
from gyre.backends.engines.launching import Server  # noqa: E402
from gyre.backends.engines.sglang import SGLangEngine  # noqa: E402
from gyre.backends.models.attention import PackedAttention  # noqa: E402
from gyre.backends.models.config_file import read_architecture  # noqa: E402
from gyre.backends.models.exporting import export  # noqa: E402
from gyre.backends.models.forward import forward_logits  # noqa: E402
from gyre.backends.models.layout import Layout  # noqa: E402
from gyre.backends.models.loading import load  # noqa: E402
from gyre.backends.models.model import Model, build  # noqa: E402
from gyre.backends.models.world import world_of_one  # noqa: E402


def logits_of(model: Model, row: list[int]) -> torch.Tensor:
    attention = PackedAttention.of_rows(torch.tensor([0, len(row)]))
    return forward_logits(model, torch.tensor(row), torch.arange(len(row)), attention)


def serve(server: Server, folder: Path, version: int) -> None:
    """Put the weights of `folder` into the running server."""
    for path, body in (
        ("/pause_generation", {"mode": "retract"}),
        ("/update_weights_from_disk", {"model_path": str(folder), "weight_version": str(version), "flush_cache": True}),
        ("/continue_generation", {}),
    ):
        headers = {"Content-Type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(server.url + path, json.dumps(body).encode(), headers)):
            pass


def sampled(server: Server, new: int) -> tuple[list[int], list[Chunk]]:
    """A sampled reply, with the row that it makes of prompt and answer."""

    async def run() -> tuple[list[int], list[Chunk]]:
        engine = SGLangEngine(server.url)
        try:
            generation = asked(new, request_id="served", inputs=30)
            chunks = await reply(engine, generation)
        finally:
            await engine.close()
        return [*generation.input_ids.tolist(), *tokens(chunks)], chunks

    return asyncio.run(run())


@pytest.fixture
def trained(tiny_model: Path) -> Model:
    """The tiny model after a step of plain descent on a row of its own."""
    model = build(read_architecture(tiny_model), Layout(), initialize=False)
    load(model, tiny_model)
    row = list(range(100, 180))
    logits_of(model, row)[:-1].log_softmax(-1).gather(1, torch.tensor(row[1:])[:, None]).mean().backward()
    with torch.no_grad():
        for weight in model.network.parameters():
            weight.add_(weight.grad)
    return model


@pytest.fixture(autouse=True, scope="module")
def one_world() -> Iterator[None]:
    with world_of_one():
        yield


def test_what_is_trained_is_what_is_served(
    sglang_engine: Server, tiny_model: Path, trained: Model, tmp_path: Path
) -> None:
    """Log-probs of sampled tokens, as the engine tells them and as the trainer computes them again."""
    export(trained, tmp_path / "trained", tiny_model)
    serve(sglang_engine, tmp_path / "trained", 7)
    try:
        row, chunks = sampled(sglang_engine, 60)
    finally:
        serve(sglang_engine, tiny_model, 0)
    told = torch.tensor(logprobs(chunks))
    assert len(told) > 0
    assert set(versions(chunks)) == {7}
    with torch.no_grad():
        computed = (
            logits_of(trained, row).log_softmax(-1)[:-1].gather(1, torch.tensor(row[1:])[:, None])[-len(told) :, 0]
        )
    assert (computed - told).abs().max() < 2e-5
