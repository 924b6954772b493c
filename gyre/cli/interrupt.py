"""Ctrl-C and SIGTERM as a wish that runs look for, not as an exception in the middle of whatever is being done."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Interrupt:
    """Whether the user asked to stop. A second Ctrl-C raises KeyboardInterrupt at once."""

    def __init__(self) -> None:
        self.asked = False

    def __call__(self) -> bool:
        """Return whether to stop."""
        return self.asked

    def _take(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


@contextlib.contextmanager
def interruptible() -> Iterator[Interrupt]:
    """Yield the wish to stop, and hear signals for it until the block ends (in the main thread, where they arrive)."""
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    before = [signal.signal(number, interrupt._take) for number in _SIGNALS]
    try:
        yield interrupt
    finally:
        for number, handler in zip(_SIGNALS, before, strict=True):
            signal.signal(number, handler)
