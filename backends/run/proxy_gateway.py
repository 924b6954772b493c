"""A proxy as the gateway of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gyre.outcome import Outcome
from gyre.trajectory.call import CallRecord
from gyre.trajectory.call_log import CallLog
from gyre.trajectory.tree import Refusal

from ..proxy.limits import NO_LIMITS, Limits
from ..proxy.proxy import Proxy
from .gateway import Endpoint
from .worker import Worker


class ProxyGateway:
    """A proxy that runs in this event loop. Close it when nothing is asked of it any more."""

    def __init__(self, proxy: Proxy, limits: Limits = NO_LIMITS) -> None:
        """`limits` are those of every execution, beside its own limit of time."""
        self._proxy = proxy
        self._limits = limits
        self._log: CallLog | None = None
        self._worker = Worker("calls")
        self.close = self._worker.close

    def open(self, name: str, *, group: str, harness: str, task: str, seconds: float | None) -> Endpoint:
        """See `Gateway.open`."""
        limits = replace(self._limits, seconds=seconds)
        opened = self._proxy.open_execution(name, group=group, harness=harness, task=task, limits=limits)
        return Endpoint(opened.base_url, opened.key)

    async def end(self, name: str, outcome: Outcome | None) -> Outcome:
        """See `Gateway.end`."""
        record = await self._proxy.end_execution(name, outcome="" if outcome is None else outcome.value)
        return Outcome(record.outcome)

    async def calls(self, name: str) -> Sequence[CallRecord | Refusal]:
        """See `Gateway.calls`."""
        return await self._worker.run(lambda: self._read(name))

    def _read(self, name: str) -> list[CallRecord | Refusal]:
        if self._log is None:
            self._log = CallLog(self._proxy.log_path)
        else:
            self._log.refresh()
        return list(self._log.read(name))
