"""What a request's path asks for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from .wire import Wire
from .wires import COUNT_TOKENS, WIRES, wire_for

PREFIX: Final = "/x/"  # then an execution's name: its base URL
_EXECUTION: Final = re.compile(re.escape(PREFIX) + r"([^/]+)(/.*)?")
_DOTS: Final = frozenset({".", ".."})


class Ask(StrEnum):
    """What a request wants."""

    REPLY = "reply"  # a call of the model
    COUNT = "count"  # how many tokens it would have
    MODELS = "models"
    HELLO = "hello"  # whether anybody is there
    UPGRADE = "upgrade"  # a web socket
    WRONG_METHOD = "wrong_method"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Route:
    """A request's target. `wire` is the protocol, of which an unknown path has OpenAI's."""

    ask: Ask
    wire: Wire
    execution: str | None  # that the path names
    allowed: str = "POST"  # methods


def route(method: str, path: str, *, upgrade: bool = False, messages_api: bool = False) -> Route:
    """Return what is asked for. `messages_api`: a header says that the client speaks Anthropic's protocol."""
    if not _DOTS.isdisjoint(path.split("/")):  # whoever normalises them may read another execution's name
        return Route(Ask.UNKNOWN, WIRES["messages" if messages_api else "chat"], None)
    found = _EXECUTION.fullmatch(path)
    execution, rest = (found[1], found[2] or "/") if found else (None, path)
    wire = wire_for("POST", rest) or WIRES["messages" if messages_api else "chat"]
    allowed = "POST" if wire_for("POST", rest) else "GET, HEAD"
    return Route(_ask(method, rest.rstrip("/"), upgrade), wire, execution, allowed)


def _ask(method: str, path: str, upgrade: bool) -> Ask:
    if upgrade:
        return Ask.UPGRADE
    if wire_for("POST", path) is not None:
        if method != "POST":
            return Ask.WRONG_METHOD
        return Ask.COUNT if path.endswith(COUNT_TOKENS) else Ask.REPLY
    if path.endswith("/models") or "/models/" in path:
        return Ask.MODELS if method in ("GET", "HEAD") else Ask.WRONG_METHOD
    if path in ("", "/v1", "/api/hello"):
        return Ask.HELLO if method in ("GET", "HEAD") else Ask.WRONG_METHOD
    return Ask.UNKNOWN
