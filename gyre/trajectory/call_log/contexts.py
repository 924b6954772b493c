"""What the writer remembers of calls, to write the next input as an earlier one and the rest."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

import numpy as np

from ...arrays import Int32Array, common_prefix
from ..call import CallRecord

CHAIN_LIMIT: Final = 32  # calls; then one is written in full, so that damage takes no more with it
_CONTEXTS_PER_EXECUTION: Final = 16  # open conversations: a main thread, and sub-agents beside each other
_LEAST_SHARED: Final = 32  # tokens; less is not worth a dependence


@dataclass(frozen=True, slots=True, eq=False)
class Context:
    """A call's input and output, as the beginning of the next call's input."""

    execution: str
    thread: str
    tokens: Int32Array
    offset: int  # of the call's frame
    crc: int  # of that frame
    chain: int  # calls in a row, this one with them, of which each but the first is written as a difference


@dataclass(frozen=True, slots=True, eq=False)
class Match:
    """How much of an input a context holds."""

    context: Context
    shared: int  # leading tokens

    @property
    def whole(self) -> bool:
        """Whether the input goes on from the context's very end."""
        return self.shared == len(self.context.tokens)


class Contexts:
    """The newest contexts of each execution, within a budget of bytes; the longest unused are let go first."""

    def __init__(self, budget_bytes: int) -> None:
        """Start with none."""
        self._budget = budget_bytes
        self._bytes = 0
        self._by_use: OrderedDict[int, Context] = OrderedDict()  # by the frame's offset
        self._by_execution: dict[str, list[Context]] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of tokens held."""
        return self._bytes

    def match(self, call: CallRecord) -> Match | None:
        """Return the context that shares most with the call's input, None where it is not worth it."""
        newest_first = reversed(self._by_execution.get(call.execution, ()))
        best: Match | None = None
        for context in sorted(newest_first, key=lambda context: context.thread != call.thread):
            found = Match(context, common_prefix(context.tokens, call.input_ids))
            if best is None or found.shared > best.shared:
                best = found
                if best.whole:  # as a rule the conversation's last call, which is looked at first
                    break
        if best is None or best.shared < _LEAST_SHARED:
            return None
        self._by_use.move_to_end(best.context.offset)
        return best

    def add(self, call: CallRecord, offset: int, crc: int, chain: int, match: Match | None) -> None:
        """Remember a call that was written at `offset`; a context that it goes on from is no longer needed."""
        if match is not None and match.whole:
            self._drop(match.context)
        tokens = np.concatenate((call.input_ids, call.output_ids))
        context = Context(call.execution, call.thread, tokens, offset, crc, chain)
        own = self._by_execution.setdefault(call.execution, [])
        if len(own) == _CONTEXTS_PER_EXECUTION:
            self._drop(own[0])
            own = self._by_execution.setdefault(call.execution, [])
        own.append(context)
        self._by_use[offset] = context
        self._bytes += tokens.nbytes
        while self._bytes > self._budget:
            self._drop(next(iter(self._by_use.values())))

    def forget(self, execution: str) -> None:
        """Let go of an execution that ended."""
        for context in list(self._by_execution.get(execution, ())):
            self._drop(context)

    def _drop(self, context: Context) -> None:
        del self._by_use[context.offset]
        self._bytes -= context.tokens.nbytes
        own = self._by_execution[context.execution]
        own.remove(context)
        if not own:
            del self._by_execution[context.execution]
