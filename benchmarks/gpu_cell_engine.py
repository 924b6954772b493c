"""Checks with a real SGLang server, started with the flags that `gyre run` gives."""

from __future__ import annotations

import asyncio
import time
import tomllib
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from gpu_cell_memory import used_bytes
from gpu_cell_models import Site, half_billion
from gpu_cell_runner import CannotRunError, Sheet

from gyre.backends.cells.engine_side import EngineSide
from gyre.backends.cells.server import Launch, local_launch
from gyre.backends.deploy.cell_processes import engine_settings
from gyre.backends.deploy.places import Places
from gyre.backends.deploy.settings import DeploySettings
from gyre.backends.engines.engine import Generation, Sampling
from gyre.backends.engines.pool import EnginePool
from gyre.backends.engines.sglang import SGLangEngine
from gyre.backends.publishing.publisher import Publisher
from gyre.backends.publishing.weights import on_disk

EXAMPLE: Final = Path(__file__).resolve().parents[1] / "examples" / "doors" / "settings.toml"
READY_S: Final = {True: 240.0, False: 800.0}  # on a GPU, on a CPU that others use too
BATCHES: Final = (1, 32, 128)
_DECODED: Final = 256  # tokens of each request, where speed is measured
_PROMPT: Final = tuple(range(20, 84))
_GREEDY: Final = Sampling(max_new_tokens=48, min_new_tokens=48, temperature=0.0)


@dataclass(frozen=True, slots=True)
class Reply:
    """What an engine said."""

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    versions: tuple[int, ...]


def deploy_settings(site: Site, model: Path, **engine: Any) -> DeploySettings:
    """The example's settings, with one cell on the device."""
    values = tomllib.loads(EXAMPLE.read_text("utf-8"))
    values["model"]["folder"] = str(model)
    values["cells"] |= {"count": 1, "capacity": 128, "device": site.device, "threads": 1}
    if site.on_gpu:
        values["cells"]["dtype"] = "bfloat16"
    return DeploySettings.of({**values, "engine": engine}, EXAMPLE)


def launch_of(site: Site, settings: DeploySettings, name: str) -> Launch:
    """What starts the engine of cell 0."""
    places = Places(site.folder / name)
    places.logs.mkdir(parents=True, exist_ok=True)
    return local_launch(engine_settings(settings, places, 0, first_gpu=0), ready_s=READY_S[site.on_gpu])


async def reply(engine: SGLangEngine, sampling: Sampling, prompt: tuple[int, ...] = _PROMPT, name: str = "") -> Reply:
    """Ask for a reply, all of it."""
    tokens: list[int] = []
    logprobs: list[float] = []
    versions: list[int] = []
    generation = Generation(name or f"check-{time.monotonic_ns()}", np.array(prompt, np.int32), sampling)
    async for chunk in engine.generate(generation):
        tokens += chunk.token_ids
        logprobs += chunk.logprobs
        versions += chunk.versions
    return Reply(tuple(tokens), tuple(logprobs), tuple(versions))


async def timed(sheet: Sheet, name: str, work: Coroutine[Any, Any, object]) -> None:
    """Note the seconds of a step, and what the GPU holds after it."""
    begin_s = time.monotonic()
    await work
    sheet.note(**{f"{name}_s": time.monotonic() - begin_s, f"{name}_bytes_after": used_bytes()})


def memory(site: Site, sheet: Sheet) -> None:
    """An engine gives its memory away and takes it again, as a cell has it do; it says the same before and after."""
    asyncio.run(_memory(site, sheet))


async def _memory(site: Site, sheet: Sheet) -> None:
    model = site.dense()
    settings = deploy_settings(site, model)
    sheet.note(flags=list(engine_settings(settings, Places(site.folder), 0, first_gpu=0).flags))
    async with EnginePool() as pool:
        publisher = Publisher(pool, on_disk(0, model))
        side = EngineSide(launch_of(site, settings, "engine-memory"), publisher)
        try:
            empty = used_bytes()
            await timed(sheet, "start", side.start())
            serving = used_bytes()
            engine = SGLangEngine(side.name)
            before = await reply(engine, _GREEDY)
            await timed(sheet, "drain", side.drain())
            await timed(sheet, "release", side.release())
            released = used_bytes()
            await timed(sheet, "restore", side.restore())
            await timed(sheet, "admit", side.admit())
            sheet.holds("same_greedy_reply_after", (await reply(engine, _GREEDY)).tokens == before.tokens)
            await timed(sheet, "publish", publisher.publish(on_disk(1, model)))
            after = await reply(engine, _GREEDY)
            sheet.holds("published_version_is_served", set(after.versions) == {1} and after.tokens == before.tokens)
            await engine.close()
            if site.on_gpu:
                sheet.holds("release_frees_most", serving - released >= 0.8 * (serving - empty))
        finally:
            await side.close()


def speed(site: Site, sheet: Sheet) -> None:
    """Tokens a second that an engine decodes, by how many requests it runs: for a hardware profile."""
    asyncio.run(_speed(site, sheet))


async def _speed(site: Site, sheet: Sheet) -> None:
    model = _shape_folder(site) if site.on_gpu and site.model is None else site.dense()
    flags = ("--load-format=dummy",) if site.on_gpu and site.model is None else ()
    settings = deploy_settings(site, model, flags=flags)
    server = await launch_of(site, settings, "engine-speed")(on_disk(0, model))
    try:
        engine = SGLangEngine(server.url, key=server.key)
        sheet.note(weights_are="random" if site.model is None else "the model's")
        for batch in BATCHES if site.on_gpu else BATCHES[:1]:
            await _decode(engine, batch, 16)  # kernels are found and compiled
            rate = await _decode(engine, batch, _DECODED if site.on_gpu else 64)
            sheet.note(**{f"batch_{batch}_tokens_per_s": rate, f"batch_{batch}_step_s": batch / rate})
        await engine.close()
    finally:
        await server.end()


async def _decode(engine: SGLangEngine, batch: int, tokens: int) -> float:
    """Tokens a second from the moment when all have begun to the first one's end."""
    sampling = Sampling(max_new_tokens=tokens, min_new_tokens=tokens)
    seen, times = [0] * batch, []
    all_begun = first_end = 0.0
    at_begin = 0
    total = 0

    async def one(number: int) -> None:
        nonlocal all_begun, first_end, at_begin, total
        prompt = np.array([20 + number % 200, *_PROMPT], np.int32)
        async for chunk in engine.generate(Generation(f"{tokens}-{batch}-{number}", prompt, sampling)):
            seen[number] += len(chunk.token_ids)
            if not all_begun and all(seen):
                all_begun, at_begin = time.monotonic(), sum(seen)
        if not first_end:
            first_end, total = time.monotonic(), sum(seen)
        times.append(time.monotonic())

    await asyncio.gather(*map(one, range(batch)))
    if not all_begun < first_end:
        raise CannotRunError(f"{batch} requests never ran at once: the first ended before the last began")
    return (total - at_begin) / (first_end - all_begun)


def _shape_folder(site: Site) -> Path:
    """Configuration and tokenizer of the half-billion shape, without weights: the engine makes some up."""
    from transformers import Qwen3Config

    from gyre.backends.models.tiny import tiny_tokenizer

    folder, shape = site.folder / "half-billion", half_billion()
    tiny_tokenizer(shape.max_positions).save_pretrained(folder)
    Qwen3Config(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden_size,
        intermediate_size=shape.ffn_size,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=32_768,
        tie_word_embeddings=True,
        architectures=["Qwen3ForCausalLM"],
        dtype="bfloat16",
    ).save_pretrained(folder)
    return folder
