"""A reply in gyre's own words, piece by piece, whichever protocol it goes out by."""

from __future__ import annotations

from dataclasses import dataclass

from gyre.trajectory.call import Finish


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More of the model's reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More of the reply's text."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallStart:
    """The model begins to call a tool. `index` counts the reply's calls from 0."""

    index: int
    id: str
    name: str
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class ToolCallArguments:
    """More of a call's arguments: a piece of JSON text, as the model wrote it."""

    index: int
    fragment: str


# A call's arguments follow its start before anything else does; text and reasoning may come in any order around calls.
Delta = ReasoningDelta | TextDelta | ToolCallStart | ToolCallArguments


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of a call."""

    input_tokens: int
    cached_tokens: int
    output_tokens: int
    reasoning_tokens: int = 0


@dataclass(frozen=True, slots=True)
class End:
    """The reply is whole."""

    finish: Finish
    usage: Usage
    stop_sequence: str = ""  # the string that ended it, where one did
    input_ids: tuple[int, ...] = ()  # only where the harness asked for token ids
    output_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Failure:
    """No reply, or no more of it: what to tell the harness, in its own protocol.

    `kind` is one of "invalid_request", "unauthorized", "forbidden", "not_found", "too_large", "too_long" (the prompt
    does not fit), "rate_limited", "overloaded", "ended" (the execution has reached a limit), "internal".
    """

    kind: str
    message: str
    retry_after_s: float | None = None
    prompt_tokens: int = 0  # of "too_long", where known: each protocol has its own phrase, which clients look for
    max_prompt_tokens: int = 0
