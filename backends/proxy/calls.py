"""The calls that run: new ones, and retries that join them."""

from __future__ import annotations

import asyncio
from typing import Final

from .call import Call, StopReason, new_call_id
from .call_runner import CallRunner
from .call_state import CallState
from .conversation import Request
from .conversations import Conversations
from .execution import Execution
from .labels import call_labels
from .metrics import Metrics
from .retries import Retries
from .settings import ProxySettings


class Calls:
    """Starts calls, and finds the one that a retry is for."""

    def __init__(
        self, runner: CallRunner, conversations: Conversations, metrics: Metrics, settings: ProxySettings
    ) -> None:
        self._runner = runner
        self._conversations = conversations
        self._metrics = metrics
        self._retries = Retries(settings.replay_s, settings.most_replays)
        self._running: dict[Call, asyncio.Task[None]] = {}
        self._loop: Final = asyncio.get_running_loop()

    def __len__(self) -> int:
        """Calls that run."""
        return len(self._running)

    @property
    def unrecordable(self) -> bool:
        """Whether replies could not be recorded just now."""
        return self._runner.unrecordable

    def context_tokens(self) -> int | None:
        """How many tokens a context may have; None while no engine has said so."""
        return self._runner.context_tokens()

    def repeated(self, execution: Execution, digest: str) -> Call | None:
        """Return the call that a request with this digest repeats, running or just finished."""
        call = self._retries.find(execution.id, digest, self._loop.time())
        if call is not None:
            self._metrics.attached.labels("finished" if call.transcript.closed else "running").inc()
        return call

    def start(self, execution: Execution, wire: str, digest: str, request: Request) -> Call:
        """Begin a call; it runs whether anybody listens or not."""
        labels = call_labels(request, execution.info.harness)
        call = Call(new_call_id(digest), digest, execution, wire, request, labels, self._loop.time())
        self._retries.add(call)
        execution.running += 1
        self._running[call] = self._loop.create_task(self._run(call))
        return call

    async def _run(self, call: Call) -> None:
        try:
            await self._runner.run(call, self._recall)
        finally:
            del self._running[call]
            call.execution.running -= 1
            call.share.release()
            self._metrics.calls.labels(call.state).inc()
            if call.state is CallState.RECORDED:
                self._retries.finished(call, self._loop.time())
            else:
                self._retries.forget(call)

    async def _recall(self, call: Call) -> bool:
        """Take the reply from the log, where an earlier process recorded it; tell whether it did."""
        found = await self._conversations.remembered(call.execution.id, call.digest, call.request)
        if found is None:
            return False
        record, shown, end = found
        call.id = record.call_id
        call.transcript.begin(len(record.input_ids))
        for state in (CallState.RENDERED, CallState.QUEUED, CallState.STREAMING):
            call.move(state)
        call.transcript.add(shown, self._loop.time())
        call.finish(end)
        self._metrics.attached.labels("recorded").inc()
        return True

    async def stop(self, reason: StopReason, execution: str | None = None) -> None:
        """Break off all calls, or those of one execution, and wait until they are recorded."""
        stopped = {call: task for call, task in self._running.items() if execution in (None, call.execution.id)}
        for call in stopped:
            call.stop(reason)
        if stopped:
            await asyncio.wait(stopped.values())
        if execution is not None:
            self._retries.forget_execution(execution)
