"""What a call has said so far, for whoever listens: the first client, and any that come later with the same request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Final

from .reply import Delta, End, Failure, ReasoningDelta, TextDelta, ToolCallArguments, ToolCallStart

_LONGEST: Final = 4096  # characters: clients may bound a line, and a piece is one


class Transcript:
    """A reply that grows. It keeps every piece, so that a listener may come late and still have all of it.

    `deltas` only grows while anybody listens. Once it is whole and nobody does, its pieces are joined: a replay says
    the same in fewer.
    """

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
        self._join()

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
        self._join()

    def fail(self, failure: Failure) -> None:
        """There will be no reply, or no more of it."""
        self.failure = failure
        self._tell()

    def _tell(self) -> None:
        for listener in tuple(self._listeners):
            listener()

    def _join(self) -> None:
        if self.end is not None and not self._listeners:
            self.deltas = joined(self.deltas)


def joined(deltas: Sequence[Delta]) -> list[Delta]:
    """Return the same reply in few pieces, each of 4,096 characters or fewer."""
    return [piece for _, run in groupby(deltas, _kind) for piece in _merged(list(run))]


def _kind(delta: Delta) -> tuple[type[Delta], int]:
    """Return what two pieces must agree in to be one."""
    return type(delta), delta.index if isinstance(delta, ToolCallStart | ToolCallArguments) else 0


def _merged(run: list[Delta]) -> Sequence[Delta]:
    match run[0]:
        case TextDelta():
            return [TextDelta(part) for part in _parts([one.text for one in run if isinstance(one, TextDelta)])]
        case ReasoningDelta():
            thoughts = [one.text for one in run if isinstance(one, ReasoningDelta)]
            return [ReasoningDelta(part) for part in _parts(thoughts)]
        case ToolCallArguments(index=index):
            fragments = [one.fragment for one in run if isinstance(one, ToolCallArguments)]
            return [ToolCallArguments(index, part) for part in _parts(fragments)]
        case _:
            return run


def _parts(texts: Sequence[str]) -> list[str]:
    whole = "".join(texts)
    return [whole[at : at + _LONGEST] for at in range(0, max(1, len(whole)), _LONGEST)]
