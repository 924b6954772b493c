"""The tree of an execution's conversations, message by message."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..conversation import Message
from .context import Context
from .turns import same_turn


@dataclass(slots=True, eq=False)
class Node:
    """A message in its place: a conversation is a path from a root."""

    message: Message  # a known turn stands as it was sampled, not as a harness wrote it anew
    call: Context | None = None  # input and output of the call that sampled it
    thinks: bool = False  # whether reasoning stands in that context
    _children: dict[Message, Node] = field(default_factory=dict)  # by each form in which the message came
    _sampled: list[Node] = field(default_factory=list)
    _newest: tuple[Message, Node] | None = None  # the child that was looked up last: comparing is faster than hashing

    def child(self, message: Message) -> Node | None:
        """Return the message that follows this one, a turn of the model's also where it was written anew."""
        if self._newest is not None and self._newest[0] == message:
            return self._newest[1]
        child = self._children.get(message)
        if child is None:
            child = next((turn for turn in reversed(self._sampled) if same_turn(turn.message, message)), None)
        if child is not None:
            self._known(message, child)
        return child

    def grow(self, message: Message, stands_for: Message) -> Node:
        """Add the message that came, as a child with what it stands for."""
        return self._known(message, Node(stands_for))

    def sampled(self, message: Message, call: Context, *, thinks: bool) -> None:
        """Add a turn of the model's. Of two that read alike the first stands: there may be calls that go on from it."""
        known = self._children.get(message)
        if known is None or known.call is None:
            turn = self._known(message, Node(message, call, thinks))
            self._sampled.append(turn)

    def _known(self, message: Message, child: Node) -> Node:
        self._children[message] = child
        self._newest = (message, child)
        return child
