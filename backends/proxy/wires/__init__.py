"""The protocols that harnesses speak, by name and by path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..wire import Wire
from .body import read_json
from .chat import ChatWire
from .messages import MessagesWire, token_count
from .responses import ResponsesWire

__all__ = ["COUNT_TOKENS", "ROUTES", "WIRES", "read_json", "token_count", "wire_for"]

_CHAT: Final[Wire] = ChatWire()
_MESSAGES: Final[Wire] = MessagesWire()
_RESPONSES: Final[Wire] = ResponsesWire()

WIRES: Final[Mapping[str, Wire]] = {wire.name: wire for wire in (_CHAT, _MESSAGES, _RESPONSES)}

COUNT_TOKENS: Final = "/messages/count_tokens"  # same body as messages; answered by `token_count`, nothing is sampled
# By method and the end of the path: some base URLs end in /v1, some do not.
ROUTES: Final[Mapping[tuple[str, str], Wire]] = {
    ("POST", "/chat/completions"): _CHAT,
    ("POST", "/messages"): _MESSAGES,
    ("POST", COUNT_TOKENS): _MESSAGES,
    ("POST", "/responses"): _RESPONSES,
}


def wire_for(method: str, path: str) -> Wire | None:
    """Return the protocol of a request to `path` (without query), or None."""
    path = path.rstrip("/")
    return next((wire for (verb, end), wire in ROUTES.items() if verb == method and path.endswith(end)), None)
