"""Ctrl-C and SIGTERM as a wish that runs look for, not as an exception in the middle of whatever is being done."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Final, NoReturn

INTERRUPTED: Final = 130  # exit code
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class CommandStoppedError(Exception):
    """A command ended early because the user asked for it; the message says what stands."""


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
    with _hearing(_SIGNALS, interrupt._take):
        yield interrupt


@contextlib.contextmanager
def termination_as_interrupt() -> Iterator[None]:
    """Let SIGTERM raise KeyboardInterrupt, as Ctrl-C does, so that what is temporary is cleared away."""
    with _hearing((signal.SIGTERM,), _raise):
        yield


@contextlib.contextmanager
def _hearing(numbers: tuple[signal.Signals, ...], handler: Callable[[int, FrameType | None], Any]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = [signal.signal(number, handler) for number in numbers]
    try:
        yield
    finally:
        for number, handled in zip(numbers, before, strict=True):
            signal.signal(number, handled)


def _raise(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt
