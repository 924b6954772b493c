"""What a call has said so far, for whoever listens: the first client, and any that come later with the same request."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .reply import Delta, End, Failure


class Transcript:
    """A reply that grows. It keeps every piece, so that a listener may come late and still have all of it."""

    def __init__(self) -> None:
        """Start with nothing."""
        self.input_tokens: int | None = None  # once the prompt is tokenised
        self.deltas: list[Delta] = []
        self.end: End | None = None
        self.failure: Failure | None = None
        self.arrived_s = 0.0  # when the last pieces came from the engine, by the event loop's clock
        self._listeners: list[Callable[[], None]] = []

    @property
    def closed(self) -> bool:
        """Whether nothing more comes."""
        return self.end is not None or self.failure is not None

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` after every change from now on."""
        self._listeners.append(listener)

    def leave(self, listener: Callable[[], None]) -> None:
        """Call it no more."""
        self._listeners.remove(listener)

    def begin(self, input_tokens: int) -> None:
        """The prompt is tokenised."""
        self.input_tokens = input_tokens
        self._tell()

    def add(self, deltas: Sequence[Delta], now_s: float) -> None:
        """More of the reply."""
        if deltas:
            self.deltas.extend(deltas)
            self.arrived_s = now_s
            self._tell()

    def finish(self, end: End) -> None:
        """The reply is whole, and recorded."""
        self.end = end
        self._tell()

    def fail(self, failure: Failure) -> None:
        """There will be no reply, or no more of it."""
        self.failure = failure
        self._tell()

    def _tell(self) -> None:
        for listener in tuple(self._listeners):
            listener()
