"""The executions that may call, and who may call for which."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

from gyre.errors import InputError

from .execution import Execution, ExecutionInfo, opened
from .keys import KeyTable
from .limits import BOUNDS, Bounds
from .reply import Failure

NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"  # it stands in URLs
KEY: Final = r"^[!-~]+$"  # what every client can put into a header
_REMEMBERED: Final = 10_000  # ended ones, to tell a late harness so
_UNKNOWN: Final = Failure("unauthorized", "no execution has this key; give its own, as Bearer or x-api-key")


class Executions:
    """Opens and ends executions and says for which one a request calls. Pure: no clock, no sockets."""

    def __init__(self, bounds: Bounds = BOUNDS) -> None:
        """Start with none."""
        self._bounds = bounds
        self._open: dict[str, Execution] = {}
        self._ended: OrderedDict[str, None] = OrderedDict()
        self._keys = KeyTable()

    def __len__(self) -> int:
        """Open executions."""
        return len(self._open)

    def __iter__(self) -> Iterator[Execution]:
        """Iterate over the open executions."""
        return iter(tuple(self._open.values()))

    def open(self, info: ExecutionInfo, key: str, now_s: float) -> Execution:
        """Let an execution call with `key`.

        Raises:
            InputError: its name does not fit into a URL, its key into a header, it is open or has ended, another has
                the key, or too many are open.
        """
        self.require_openable(info.id, key)
        try:
            self._keys.add(key, info.id)
        except ValueError as error:
            raise InputError(f"execution {info.id}: {error}; give another key") from error
        execution = self._open[info.id] = opened(info, self._bounds, now_s)
        return execution

    def require_openable(self, name: str, key: str) -> None:
        """Check that an execution of this name may be opened, whosever the key is.

        Raises:
            InputError: as `open`.
        """
        _require_name_and_key(name, key)
        if self.known(name):
            what = "is open already" if name in self._open else "has ended"
            raise InputError(f"execution {name}: {what}; give another name")
        if len(self._open) >= self._bounds.executions:
            raise InputError(f"execution {name}: {len(self._open)} are open, as many as may be; end one first")

    def shut(self, execution: str, now_s: float) -> Execution:
        """Let it call no more; it stays open until `end`, and may be shut again.

        Raises:
            InputError: it is not open.
        """
        shut = self._open.get(execution)
        if shut is None:
            raise InputError(f"execution {execution[:200]}: not open; the list of executions says which are")
        if shut.ended_s is None:
            shut.ended_s = now_s
        return shut

    def end(self, execution: str) -> None:
        """Forget what an open one has used; its key goes on telling who it was."""
        del self._open[execution]
        self.mark_ended(execution)

    def mark_ended(self, execution: str) -> None:
        """Remember that an execution of that name has ended."""
        self._ended[execution] = None
        if len(self._ended) > _REMEMBERED:
            forgotten, _ = self._ended.popitem(last=False)
            self._keys.drop(forgotten)

    def known(self, execution: str) -> bool:
        """Return whether one of that name is open or has ended."""
        return execution in self._open or execution in self._ended

    def get(self, execution: str) -> Execution | None:
        """Return an open execution."""
        return self._open.get(execution)

    def identify(self, key: str, named: str | None) -> Execution | Failure:
        """Return the execution that a request is for: its key says which; the path, where it names one, must agree."""
        owner = self._keys.owner(key) if key else None
        if owner is None:
            return _UNKNOWN
        if named is not None and named != owner:
            return Failure("forbidden", "this key belongs to another execution than the one in the path")
        if (execution := self._open.get(owner)) is not None and execution.ended_s is None:
            return execution
        return Failure("ended", f"execution {owner} has ended; stop here")

    def admit(self, execution: Execution, now_s: float, running: int) -> Failure | None:
        """Count a call against the execution's rate; return why it must wait, where it must.

        `running` are the calls of all executions.
        """
        wait = self._bounds.retry_after_s
        if not execution.bucket.take(now_s):
            return Failure("rate_limited", "too many calls a second; wait, then try again", retry_after_s=wait)
        return self.room(execution, running)

    def room(self, execution: Execution, running: int) -> Failure | None:
        """Return why a call that begins now must wait, where it must; its rate has been counted."""
        wait = self._bounds.retry_after_s
        if execution.running >= self._bounds.calls_at_once:
            what = f"{execution.running} calls of this execution are running; wait for one to end, then try again"
            return Failure("rate_limited", what, retry_after_s=wait)
        if running >= self._bounds.calls_in_all:
            return Failure("rate_limited", "the proxy is full; wait, then try again", retry_after_s=wait)
        return None


def _require_name_and_key(name: str, key: str) -> None:
    if not re.fullmatch(NAME, name):
        what = "expected at most 128 letters, digits, dots, dashes and underscores, a letter or digit first"
        raise InputError(f"execution {name[:200]!r}: {what}")
    if not key or not re.fullmatch(KEY, key):
        what = "must be printable ASCII without a space" if key else "must not be empty"
        raise InputError(f"execution {name}: a key {what}; give another key")
