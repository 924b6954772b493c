"""A reply's deltas gathered into blocks: runs of reasoning, runs of text, and calls."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from ..reply import Delta, Failure, ReasoningDelta, TextDelta, ToolCallArguments, ToolCallStart

BROKEN: Final = Failure("internal", "the reply broke off")  # to be told where a reply's end says that it is not whole


@dataclass(slots=True, eq=False)
class Block:
    """One run. `opening` is its first delta; `pieces` are joined once, at its end, however many they were."""

    opening: Delta
    pieces: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All of its pieces: text, reasoning or a call's arguments."""
        return "".join(self.pieces)


class Blocks:
    """The blocks of a reply so far; the last may still grow."""

    def __init__(self) -> None:
        self.all: Final[list[Block]] = []

    @property
    def calls(self) -> bool:
        """Whether any tool is called."""
        return any(isinstance(block.opening, ToolCallStart) for block in self.all)

    def opens(self, delta: Delta) -> bool:
        """Tell whether `delta` begins a block of its own; a delta of no text never does.

        Raises:
            ValueError: arguments of a call that is not the one begun last.
        """
        last = self.all[-1].opening if self.all else None
        match delta:
            case ToolCallStart():
                return True
            case ToolCallArguments(index, _):
                if not isinstance(last, ToolCallStart) or last.index != index:
                    raise ValueError(f"arguments of call {index} do not follow its start")
                return False
            case ReasoningDelta(text) | TextDelta(text):
                return bool(text) and type(last) is not type(delta)

    def add(self, delta: Delta) -> str:
        """Put `delta` where it belongs and return its text."""
        if self.opens(delta):
            self.all.append(Block(delta))
        match delta:
            case ToolCallStart():
                return ""
            case ToolCallArguments(_, piece) | ReasoningDelta(piece) | TextDelta(piece):
                if piece:
                    self.all[-1].pieces.append(piece)
                return piece


def gathered(deltas: Iterable[Delta]) -> Blocks:
    """Return the blocks of a whole reply.

    Raises:
        ValueError: arguments that do not follow their call's start.
    """
    blocks = Blocks()
    for delta in deltas:
        blocks.add(delta)
    return blocks
