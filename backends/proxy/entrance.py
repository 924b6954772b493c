"""Which execution a request calls for, where none that is open has its key yet."""

from __future__ import annotations

from collections.abc import Callable

from gyre.errors import InputError

from .execution import Execution, ExecutionInfo
from .executions import Executions
from .open_keys import OpenKeys
from .opened_file import OpenedFile
from .reply import Failure


class Entrance:
    """Opens executions for keys: those that an earlier proxy had open, and where any key may open one, new ones.

    The first of these are opened when they call: nothing is known of those that never come back.
    """

    def __init__(
        self,
        executions: Executions,
        opened: OpenedFile,
        keys: OpenKeys | None,
        open_execution: Callable[[ExecutionInfo | str, str], object],
    ) -> None:
        """`keys`: None where only executions call that somebody has opened."""
        self._executions = executions
        self._opened = opened
        self._keys = keys
        self._open = open_execution

    def identify(self, key: str, named: str | None) -> Execution | Failure:
        """Return the execution that a request is for, by its key and the name in its path."""
        found = self._executions.identify(key, named)
        if not key or not isinstance(found, Failure) or found.kind != "unauthorized":
            return found
        try:
            if self._opens(key, named):
                return self._executions.identify(key, named)
        except InputError as error:
            return Failure("forbidden", str(error))
        return found

    def _opens(self, key: str, named: str | None) -> bool:
        """Open the execution of a key that no open one has; return whether it may.

        Raises:
            InputError: it cannot be opened.
        """
        info, keys = self._opened.find(key), self._keys
        if info is not None and not self._executions.known(info.id):
            self._open(info, key)
            return True
        if keys is None or (named is not None and self._executions.known(named)):
            return False  # another key than its own
        name = named or keys.name(key)
        self._executions.require_openable(name, key)  # first, so that nothing is kept of what cannot be opened
        if not keys.owns(name, key):
            return False
        self._open(name, key)
        return True
