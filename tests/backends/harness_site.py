"""A harness at work at a proxy and an engine that are processes of their own, to be killed and started again."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from harness_runs import Run, check_unharmed, odd_ids
from harnesses import Endpoint, Finished, Harness, run
from proxy_bench import renderer_of
from proxy_process import Running, proxy
from task_engine import EngineProcess, task_engine
from wire_tap import WireTap, wire_tap

from gyre.backends.engines.launching import free_port
from gyre.trajectory import CallRecord
from gyre.trajectory.call_log import CallLog

KEY: Final = "sk-task"
LOOK_EVERY_S: Final = 0.02


@dataclass
class Site:
    """Where a harness works: execution "task" of a proxy, seen through a tap."""

    harness: Harness
    folder: Path
    tokenizer: Path
    options: tuple[str, ...] = ()  # of the proxy
    began: list[int] = field(default_factory=list)  # turns, for each generation on an engine
    reached: list[int] = field(default_factory=list)  # turns whose first tokens have been sent
    tap: WireTap = field(init=False)
    proxy: Running = field(init=False)
    engine: EngineProcess = field(init=False)

    def __post_init__(self) -> None:
        self.turns = [odd_ids(renderer_of(self.tokenizer), text) for text in self.harness.turns()]
        self.port, self.engine_port = free_port(), free_port()
        self._stack = ExitStack()
        self._threads = ThreadPoolExecutor(1)
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "turns.json").write_text(json.dumps(self.turns))

    def start_engine(self) -> None:
        """Start the engine, or start it again."""
        turns = self.folder / "turns.json"
        self.engine = self._stack.enter_context(task_engine(self.engine_port, self.tokenizer, turns, self._hear))

    def start_proxy(self) -> None:
        """Start the proxy, or start it again: the same port, the same folder. It listens when this returns."""
        options = (
            *("--engine", f"http://127.0.0.1:{self.engine_port}", "--tokenizer", str(self.tokenizer)),
            *("--out", str(self.folder / "calls"), "--port", str(self.port), "--execution", f"task={KEY}"),
            *("--tool-call-parser", "qwen25", "--reasoning-parser", "qwen3", "--quiet", *self.options),
        )
        self.proxy = self._stack.enter_context(proxy(*options))
        self.proxy.url("admin and metrics")

    def kill_proxy(self) -> None:
        """Let it die, by kill -9."""
        self.proxy.process.kill()
        self.proxy.process.communicate()

    def restart_proxy(self) -> None:
        """Kill it, and start it again; meanwhile nobody listens."""
        self.tap.close()
        self.kill_proxy()
        self.start_proxy()
        self.tap.open()

    def start_harness(self, patience_s: float = 240.0) -> Future[Finished]:
        """Let the harness do its task."""
        endpoint = Endpoint(f"{self.tap.url}/x/task", KEY)
        home, work = self.folder / "home", self.folder / "work"
        return self._threads.submit(lambda: run(self.harness, home, work, endpoint, patience_s=patience_s))

    def records(self) -> list[CallRecord]:
        """What stands in the log now."""
        with CallLog(self.folder / "calls" / "proxy.calls") as log:
            return list(log.calls("task"))

    def until(self, true: Callable[[], bool], working: Future[Finished], patience_s: float = 120.0) -> None:
        """Wait until something is true; a harness that ends before that has failed."""
        end_s = time.monotonic() + patience_s
        while not true():
            assert not working.done(), working.result().output[-3000:]
            assert time.monotonic() < end_s, "it did not happen"
            time.sleep(LOOK_EVERY_S)

    def _hear(self, word: str, turn: int) -> None:
        (self.began if word == "began" else self.reached).append(turn)

    def check_unharmed(self, finished: Finished) -> None:
        """The task is done, and what was recorded is what was said, each call once."""
        records = self.records()
        assert [record.output_ids.tolist() for record in records] == self.turns
        check_unharmed(Run(finished, records, 0, self.folder / "work"))

    def close(self) -> None:
        """End every process."""
        self._stack.close()
        self._threads.shutdown()


@contextmanager
def site(harness: Harness, folder: Path, tokenizer: Path, *options: str) -> Iterator[Site]:
    """Start engine, proxy and tap."""
    harness.path()
    renderer_of(tokenizer)
    made = Site(harness, folder, tokenizer, options)
    try:
        made.start_engine()
        made.start_proxy()
        with wire_tap(f"http://127.0.0.1:{made.port}", free_port()) as made.tap:
            yield made
    finally:
        made.close()
