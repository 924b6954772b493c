"""The whole proxy: put together, started, stopped, and told of executions."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from gyre.errors import InputError
from gyre.outcome import Outcome
from gyre.trajectory.execution import ExecutionRecord

from ..engines.pool import EnginePool
from .admin import admin_app
from .call import StopReason
from .call_run import CallTools
from .call_runner import CallRunner
from .calls import Calls
from .conversations import Conversations
from .engine_watch import watch_engines
from .engines import Engines
from .entrance import Entrance
from .execution import Execution, ExecutionInfo, OpenedExecution
from .executions import Executions
from .folder_secret import FolderSecret
from .keys import new_key
from .limits import NO_LIMITS, Limits
from .listener import Listener
from .metrics import Metrics
from .open_keys import OpenKeys
from .opened_file import OpenedFile
from .paths import PREFIX
from .recorder import Recorder
from .reply import Failure
from .service import ProxyService
from .settings import SETTINGS, ProxySettings
from .tokens import Renderer

_log = logging.getLogger(__name__)
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


class Proxy:
    """A proxy in front of the engines of `pool`, recording into `folder`. Use it as `async with Proxy(...) as proxy`.

    Raises (on entering):
        InputError: another proxy records there, the log cannot be read, an address cannot be had, or as
            `open_execution`.
    """

    def __init__(
        self,
        renderer: Renderer,
        pool: EnginePool,
        folder: Path,
        settings: ProxySettings = SETTINGS,
        *,
        admin_key: str | None = None,
        open_to_all: bool = False,
        limits: Limits = NO_LIMITS,
        executions: Sequence[tuple[str, str]] = (),
    ) -> None:
        """`open_to_all`: any key opens an execution of its own. `limits` are those of executions that name none.

        `executions` are names and keys of those that are open before the first request is taken: harnesses that wait
        for a proxy that is started again take a key that it does not know for the end.
        """
        self.pool = pool
        self.metrics = Metrics()
        self._renderer = renderer
        self._folder = folder
        self._settings = settings
        self._admin_key = admin_key
        self._open_to_all = open_to_all
        self._limits = limits
        self._first = executions
        self.opened: tuple[OpenedExecution, ...] = ()  # of these
        self._executions = Executions(settings.bounds)
        self._ending: set[str] = set()
        self._entered: set[str] = set()  # opened because an earlier proxy had, by those that called

    async def __aenter__(self) -> Self:
        settings = self._settings
        if self._admin_key is None and settings.host not in _LOOPBACK:
            raise InputError(f"{settings.host}: others can reach this address; give an admin key too")
        async with AsyncExitStack() as stack:
            self._recorder = Recorder(self._folder)
            stack.callback(self._recorder.close)
            secret = FolderSecret(self._folder)
            self._opened_file = OpenedFile(self._folder, secret, self._recorder.ended)
            keys = OpenKeys(self._folder, secret) if self._open_to_all else None
            self._entrance = Entrance(self._executions, self._opened_file, keys, self._enter)
            for problem in (*self._recorder.problems, *self._opened_file.problems):
                _log.warning("%s", problem)
            self._conversations = Conversations(self._renderer)
            stack.callback(self._conversations.close)
            service = self._service()
            stack.push_async_callback(service.close)
            stack.push_async_callback(self._calls.stop, StopReason.SHUTDOWN)  # what comes in while the doors close
            self._listener = Listener(service, settings.host, settings.port, settings.descriptor)
            stack.push_async_callback(self._listener.stop)
            self._admin = Listener(admin_app(self, self._admin_key), settings.host, settings.admin_port)
            stack.push_async_callback(self._admin.stop)
            stack.push_async_callback(self._calls.stop, StopReason.SHUTDOWN)
            self._watch()
            self.opened = tuple(self.open_execution(name, key=key) for name, key in self._first)
            await self._listener.start()
            await self._admin.start()
            watching = asyncio.create_task(watch_engines(self.pool))
            stack.callback(watching.cancel)
            self._stack = stack.pop_all()
        return self

    def _service(self) -> ProxyService:
        settings, metrics = self._settings, self.metrics
        self._engines = Engines(self.pool, self._decode, settings.context_tokens, self._renderer.vocabulary)
        tools = CallTools(self._renderer, self._conversations, self._engines, self._recorder, metrics, settings)
        self._calls = Calls(CallRunner(tools), self._conversations, metrics, settings)
        identify = self._entrance.identify
        return ProxyService(identify, self._executions, self._calls, self._conversations, metrics, settings)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    @property
    def url(self) -> str:
        """Where harnesses find it; the key alone says for which execution they call."""
        return self._listener.url

    @property
    def admin_url(self) -> str:
        """Where executions are opened and metrics read."""
        return self._admin.url

    @property
    def log_path(self) -> Path:
        """The call log."""
        return self._recorder.path

    def open_execution(
        self,
        execution: str | None = None,
        *,
        key: str | None = None,
        group: str = "",
        harness: str = "",
        task: str = "",
        limits: Limits | None = None,
        remember: bool = False,
    ) -> OpenedExecution:
        """Let an execution call; name and key are made up where none are given.

        One that an earlier proxy recorded here and that had not ended goes on where it stood. With `remember`, a later
        proxy that records here knows it by its key without being told; opened there once more, it is left as it is.

        Raises:
            InputError: it is open or has ended, its name does not fit into a URL or its key into a header, another has
                its key, or too many are open.
        """
        name = execution or f"x{secrets.token_hex(8)}"
        key = key or new_key()
        if name not in self._entered or isinstance(self._executions.identify(key, name), Failure):
            info = ExecutionInfo(name, group or name, harness, task, self._limits if limits is None else limits)
            self._open(info, key)
            if remember:
                self._opened_file.remember(info, key)
        return OpenedExecution(name, f"{self.url}{PREFIX}{name}", key)

    def _open(self, info: ExecutionInfo, key: str) -> None:
        name = info.id
        if name in self._recorder.ended:
            raise InputError(f"execution {name}: has ended, as the log says; give another name")
        opened = self._executions.open(info, key, asyncio.get_running_loop().time())
        records = self._recorder.read(name)
        opened.go_on(records)
        self._conversations.open(name, records)
        _log.info("an execution is opened", extra={"execution": name, "harness": info.harness or None})

    def _enter(self, who: ExecutionInfo | str, key: str) -> None:
        """Open an execution whose key has come: one that an earlier proxy had open, or a new one of that name."""
        if isinstance(who, str):
            self.open_execution(who, key=key)
        else:
            self._open(who, key)
            self._entered.add(who.id)

    async def end_execution(self, execution: str, *, score: float | None = None, outcome: str = "") -> ExecutionRecord:
        """Break off its calls, refuse further ones and write its record; `outcome` is a word of Outcome.

        Where the log cannot be written, it calls no more, and stays open until it is ended once again.

        Raises:
            InputError: it is not open, or is being ended.
            LogUnwritableError: the log cannot be written.
        """
        if execution in self._ending:
            raise InputError(f"execution {execution}: is being ended; wait for that")
        ended = self._executions.shut(execution, asyncio.get_running_loop().time())
        self._ending.add(execution)
        try:
            return await self._end(ended, score, outcome)
        finally:
            self._ending.discard(execution)

    async def _end(self, ended: Execution, score: float | None, outcome: str) -> ExecutionRecord:
        execution = ended.id
        await self._calls.stop(StopReason.EXECUTION_ENDED, execution)
        default = Outcome.HARNESS_TIMEOUT if ended.limit_reached else Outcome.COMPLETED
        record = ExecutionRecord(
            execution=execution,
            group=ended.info.group,
            score=score,
            harness=ended.info.harness,
            task=ended.info.task,
            outcome=outcome or default.value,
            wall_s=ended.elapsed_s(asyncio.get_running_loop().time()),
        )
        await self._recorder.append_execution(record)
        self._executions.end(execution)
        self._conversations.forget(execution)
        self._engines.forget(execution)
        _log.info("an execution has ended", extra={"execution": execution, "reason": record.outcome})
        return record

    def executions(self) -> list[dict[str, Any]]:
        """Return the open executions and what they have used, ready for JSON."""
        now_s = asyncio.get_running_loop().time()
        return [
            {
                "id": one.id, "group": one.info.group, "harness": one.info.harness, "task": one.info.task,
                "steps": one.steps, "tokens": one.tokens, "seconds": round(one.elapsed_s(now_s), 3),
                "running": one.running, "ending": one.ended_s is not None, "limit_reached": one.limit_reached,
            }
            for one in self._executions
        ]  # fmt: skip

    def _decode(self, token_ids: Sequence[int]) -> str:
        text: str = self._renderer.tokenizer.decode(
            list(token_ids), skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return text

    def _watch(self) -> None:
        watch = self.metrics.watch
        watch("gyre_proxy_executions", "Open executions", lambda: len(self._executions))
        watch("gyre_proxy_calls_running", "Calls that run", lambda: len(self._calls))
        watch("gyre_proxy_engines_unproven", "Engines whose model could not be told", self._engines.unproven)
        watch("gyre_proxy_calls_queued", "Calls that wait for an engine", self.pool.queued)
