"""A whole proxy on a free port, in a thread of its own, in front of engines that say what a script says."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gyre.backends.engines.engine import Generation
from gyre.backends.engines.member import Checks
from gyre.backends.engines.pool import EnginePool
from gyre.backends.engines.scripted import ScriptedEngine
from gyre.backends.proxy.proxy import Proxy
from gyre.backends.proxy.settings import ProxySettings
from gyre.backends.proxy.tokens import Parsers, Renderer
from gyre.trajectory.call import CallRecord
from gyre.trajectory.call_log import CallLog

QUICK = Checks(every_s=0.05, retry_s=0.02, retry_most_s=0.1)
logging.getLogger("gyre.backends").setLevel(logging.INFO)  # so that tests hear what is logged
QUICK_SETTINGS = ProxySettings(keep_alive_s=0.2, linger_s=0.1)
_renderers: dict[Path, Renderer] = {}


def renderer_of(folder: Path) -> Renderer:
    """A renderer of the tiny model's tokenizer, made once: it makes no difference to what is rendered."""
    if folder not in _renderers:
        from gyre.backends.models.tiny import tiny_tokenizer

        tokenizer = tiny_tokenizer(1 << 20)
        tokenizer.save_pretrained(folder)
        parsers = Parsers(tool_calls="qwen25", reasoning="qwen3")
        parsers.load()  # else the first call of a test waits for SGLang to be imported
        _renderers[folder] = Renderer(folder, parsers=parsers)
    return _renderers[folder]


def saying(renderer: Renderer, *replies: str | Callable[[str], str]) -> Callable[[Generation], Sequence[int]]:
    """A script of replies in turn, the last for ever: each a text, or a function of the prompt's text.

    A prompt that comes again (a reply that goes on elsewhere) gets the reply that it had.
    """
    given: dict[bytes, list[int]] = {}

    def script(generation: Generation) -> Sequence[int]:
        own = generation.input_ids[: len(generation.input_ids) - generation.continued_tokens]
        name = generation.request_id.rpartition(".")[0]
        key = name.encode() + own.tobytes()
        if key not in given:
            reply = replies[min(len(given), len(replies) - 1)]
            text = reply if isinstance(reply, str) else reply(renderer.tokenizer.decode(own.tolist()))
            given[key] = [*renderer.tokenizer.encode(text, add_special_tokens=False), renderer.tokenizer.eos_token_id]
        return given[key]

    return script


class Bench:
    """A running proxy, its engines and the thread they live in."""

    def __init__(self, renderer: Renderer, folder: Path, settings: ProxySettings, **proxy_options: Any) -> None:
        self.renderer = renderer
        self.folder = folder
        self.loop = asyncio.new_event_loop()
        self.engines: list[ScriptedEngine] = []
        self.proxy: Proxy
        self._settings = settings
        self._options = proxy_options

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine in the proxy's loop."""
        return self.submit(work).result(30)

    def submit(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        """Start a coroutine in the proxy's loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function in the proxy's loop."""

        async def work() -> Any:
            return function(*args, **kwargs)

        return self.run(work())

    def open(self, *args: Any, **kwargs: Any) -> Any:
        """Open an execution."""
        return self.call(self.proxy.open_execution, *args, **kwargs)

    def records(self, execution: str) -> list[CallRecord]:
        """What the log holds of an execution now."""
        with CallLog(self.proxy.log_path) as log:
            return list(log.calls(execution))


@contextmanager
def bench(
    renderer: Renderer,
    folder: Path,
    engines: Callable[[], list[ScriptedEngine]],
    settings: ProxySettings = QUICK_SETTINGS,
    **proxy_options: Any,
) -> Iterator[Bench]:
    """Run a proxy; `engines` is called in its loop."""
    made = Bench(renderer, folder, settings, **proxy_options)
    ready: Future[None] = Future()
    stop = asyncio.Event()

    async def serve() -> None:
        try:
            async with EnginePool(checks=QUICK) as pool:
                made.engines = engines()
                for engine in made.engines:
                    pool.add(engine)
                async with Proxy(renderer, pool, folder, settings, **proxy_options) as made.proxy:
                    ready.set_result(None)
                    await stop.wait()
        except BaseException as error:
            if ready.done():
                raise
            ready.set_exception(error)

    thread = threading.Thread(target=lambda: made.loop.run_until_complete(serve()), daemon=True)
    thread.start()
    ready.result(30)
    try:
        yield made
    finally:
        made.loop.call_soon_threadsafe(stop.set)
        thread.join(30)
        made.loop.close()
