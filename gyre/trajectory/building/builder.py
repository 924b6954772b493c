"""Calls in, in any order and at any time; the tree of all so far out."""

from __future__ import annotations

from collections.abc import Iterable

from ...errors import InputError
from ..call import CallRecord
from ..check import Reason, refusal, refuse
from ..tree import Refusal, Tree
from .calls import Entry, Sampled
from .finish import Material, Nearest, finished, nearest
from .media import StandIns
from .radix import Radix


class TreeBuilder:
    """Builds the tree of one execution from its calls.

    The tree depends on the set of calls alone: not on the order in which they came, nor on trees made in between. (Of
    two calls with one id or sequence number the one that came first stands.) A call's arrays are not kept.
    """

    def __init__(self, execution: str, harness: str = "") -> None:
        self.execution = execution
        self.harness = harness  # "": as the first call in commit order that names one
        self._empty()

    def _empty(self) -> None:
        self.refused: list[Refusal] = []
        self._entries: list[Entry] = []  # row by row as in the radix forest's places
        self._call_ids: set[str] = set()
        self._sequences: set[int] = set()
        self._radix = Radix()
        self._sampled = Sampled()
        self._stand_ins = StandIns()

    def add(self, call: CallRecord) -> Refusal | None:
        """Add a call, or keep and return why it is left out. One without output changes nothing.

        Raises InputError for a call of another execution.
        """
        if call.execution != self.execution:
            raise InputError(
                f"call {call.call_id} is of execution {call.execution!r}, but this tree is of {self.execution!r}: "
                "use one TreeBuilder per execution"
            )
        # Negative ids are found while the tokens are compared with the forest: no pass over the whole input for them.
        found = refusal(call, scan_ids=bool(call.media))
        if found is None and len(call.output_ids):
            found = self._repeated(call)
            if found is None and self._inserted(call):
                return None
        found = refusal(call) or found
        if found is not None:
            self.refused.append(found)
        return found

    def _repeated(self, call: CallRecord) -> Refusal | None:
        if call.call_id in self._call_ids:
            return refuse(call, Reason.DUPLICATE_CALL, "call_id stands in an earlier call of the execution")
        if call.sequence in self._sequences:
            what = f"sequence {call.sequence} stands in an earlier call of the execution"
            return refuse(call, Reason.DUPLICATE_CALL, what)
        return None

    def _inserted(self, call: CallRecord) -> bool:
        """Insert a call with output, unless it has a negative token."""
        inputs = self._stand_ins.put(call.input_ids, call.media) if call.media else call.input_ids
        if not self._radix.insert(inputs, call.output_ids, negative=bool(call.media)):
            return False
        self._call_ids.add(call.call_id)
        self._sequences.add(call.sequence)
        logprobs = call.logprobs if call.by_policy else None
        row = 0 if logprobs is None else self._sampled.append(logprobs, call.versions)
        self._entries.append(Entry.of(call, row))
        return True

    def tree(self) -> Tree:
        """Return the tree of the calls so far, which shares no array with the builder."""
        return finished(self.execution, self.harness, self._material())

    def nearest(self) -> Nearest:
        """Return which earlier call each call so far continues."""
        return nearest(self.execution, self._material())

    def close(self) -> Tree:
        """Return the tree of all calls, within less memory than `tree` needs. The builder is empty afterwards."""
        tree = finished(self.execution, self.harness, self._material(), last=True)
        self._empty()
        return tree

    def _material(self) -> Material:
        return Material(self._entries, self.refused, self._radix, self._sampled, self._stand_ins)


def build_tree(calls: Iterable[CallRecord], execution: str | None = None, harness: str = "") -> Tree:
    """Return the tree of one execution's calls, in any order.

    `execution` need only be given where there may be no call. Raises InputError where the calls are of several
    executions, or there is none and `execution` is not given.
    """
    builder = None if execution is None else TreeBuilder(execution, harness)
    for call in calls:
        if builder is None:
            builder = TreeBuilder(call.execution, harness)
        builder.add(call)
    if builder is None:
        raise InputError("no calls: name the execution to get an empty tree of it")
    return builder.close()
