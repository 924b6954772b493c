"""Runs calls, and turns whatever goes wrong with one into a failure that its clients are told."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from .call import Call, StopReason
from .call_run import BROKEN, STOPPED, CallRun, CallTools
from .call_state import CallState
from .refusals import RefusedError
from .reply import Failure

_log = logging.getLogger(__name__)


class CallRunner:
    """Runs calls: renders, generates, records, then lets the clients have the end."""

    def __init__(self, tools: CallTools) -> None:
        self._tools = tools

    @property
    def unrecordable(self) -> bool:
        """Whether the log could not be written just now."""
        return self._tools.recorder.failing

    def context_tokens(self) -> int | None:
        """How many tokens a context may have; None while no engine has said so."""
        return self._tools.engines.context_tokens()

    async def run(self, call: Call, recall: Callable[[Call], Awaitable[bool]]) -> None:
        """Take the call to its end, unless `recall` knows its reply.

        Whatever goes wrong reaches the clients as a failure, never as an exception.
        """
        try:
            if not await recall(call):
                await CallRun(self._tools, call).run()
        except RefusedError as refused:
            self._fail(call, refused.failure)
        except asyncio.CancelledError:
            self._fail(call, STOPPED[StopReason.SHUTDOWN])
            raise
        except Exception:
            self._fail(call, BROKEN)  # first of all: clients wait
            _log.exception("a call failed", extra=call.told)

    def _fail(self, call: Call, failure: Failure) -> None:
        if call.transcript.closed:
            return
        if call.stopped is not None:
            call.move(CallState.ABORTED)
            call.transcript.fail(failure)
        else:
            call.fail(failure)
            _log.warning("a call failed", extra={**call.told, "kind": failure.kind})  # its words may hold a body's
