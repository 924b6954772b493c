"""SGLang's reply stream, read without sockets: bytes in, chunks out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import orjson

from gyre.trajectory.call import Finish

from .engine import Chunk, EngineLostError, RequestRefusedError
from .error_text import error_text

_LOGPROBS: Final = b'"output_token_logprobs":['
_META: Final = b'"meta_info":'
_SMALL_BYTES: Final = 8192  # so much is parsed whole
_FINISHES: Final = {"stop": Finish.STOP, "length": Finish.LENGTH, "abort": Finish.ABORT}
_TOKEN_IDS: Final = range(1 << 31)  # int32
_ROUNDING: Final = 1e-4  # by so much a log-prob may seem above 0
_LEAST_LOGPROB: Final = -3.4e38  # float32
_UNREADABLE: Final = (ValueError, LookupError, TypeError, AttributeError, OverflowError)


class EventLines:
    """Splits a server-sent event stream into the payloads of its `data:` lines; SGLang writes one to an event."""

    def __init__(self) -> None:
        self._pending = bytearray()
        self._scanned = 0  # no line ends before this

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield each payload that is now whole. To be exhausted before the next call."""
        self._pending += data
        start = 0
        while (end := self._pending.find(b"\n", self._scanned)) >= 0:
            if self._pending.startswith(b"data: ", start):
                with memoryview(self._pending) as view:  # one copy: a line may repeat a long reply
                    payload = bytes(view[start + 6 : end])
                yield payload
            start = self._scanned = end + 1
        del self._pending[:start]
        self._scanned = len(self._pending)


class ReplyReader:
    """Turns one request's payloads into chunks.

    A server started with `--incremental-streaming-output` sends what is new; any other repeats the whole reply in
    every event. Both are read: `completion_tokens` counts what was sampled in all, the last entries of the log-probs
    are what is new. Of a long repetition only the new end is parsed, so that a token costs the same late in a reply as
    early.
    """

    def __init__(self, number: Callable[[object], int], most: int | None = None) -> None:
        """Read a reply of at most `most` tokens. `number` makes a version of a name, or raises a ValueError."""
        self._number = number
        self._most = most
        self._said: list[int] = []  # version by token, as chunks said
        self._list_at = 0  # where the list of log-probs began in the last long payload
        self._list_bytes = 0  # length of the entries of all tokens so far, there

    def read(self, payload: bytes) -> Chunk:
        """Return what the event adds; the chunk may hold no token.

        Raises:
            EngineLostError: the payload is not what SGLang sends, or tells of a fault of the engine's.
            RequestRefusedError: the engine says that the request is at fault, before any token.
        """
        try:
            meta, entries = self._new_end(payload) or self._whole(payload)
            return self._chunk(meta, entries)
        except _UNREADABLE as error:
            # Neither the payload nor the error's own words: they may hold what was sampled.
            what = f"{type(error).__name__} in an event of {len(payload)} bytes"
            raise EngineLostError(f"the engine sent what cannot be read: {what}") from None

    def _whole(self, payload: bytes) -> tuple[dict[str, Any], list[Any]]:
        event = orjson.loads(payload)
        if "error" in event:
            raise self._failure(event["error"])
        meta = event["meta_info"]
        if (reason := meta.get("finish_reason")) and reason.get("status_code") == 400:
            raise self._failure({"code": 400, "message": reason.get("message")})
        entries = meta.get("output_token_logprobs") or []
        if len(payload) > _SMALL_BYTES and len(entries) == meta["completion_tokens"]:
            self._list_at = payload.find(_LOGPROBS)
            start = self._list_at + len(_LOGPROBS)
            self._list_bytes = payload.find(b"]]", start) + 1 - start
        return meta, entries

    def _new_end(self, payload: bytes) -> tuple[dict[str, Any], list[Any]] | None:
        """Parse only what follows the entries that an earlier payload had; None where that cannot be relied on."""
        if not self._list_bytes or len(payload) <= _SMALL_BYTES:
            return None
        # All before the list only grows, so it begins no earlier than it did.
        at = payload.find(_LOGPROBS, self._list_at)
        start = at + len(_LOGPROBS)
        known = start + self._list_bytes
        if at < 0 or payload[known - 1 : known] != b"]" or payload[known : known + 1] not in (b",", b"]"):
            return None
        end = payload.find(b"]]", known - 1) + 1
        head = payload.rfind(_META, 0, at) + len(_META)
        meta = orjson.loads(payload[head:start] + payload[end:-1])
        entries = orjson.loads(b"[" + payload[known + 1 : end] + b"]")
        if len(self._said) + len(entries) != meta["completion_tokens"]:
            return None
        self._list_at, self._list_bytes = at, end - start
        return meta, entries

    def _chunk(self, meta: dict[str, Any], entries: list[Any]) -> Chunk:
        before, total = len(self._said), meta["completion_tokens"]
        self._check_count(before, total, len(entries))
        new = entries[len(entries) - (total - before) :] if total > before else []
        finish = _finish(meta.get("finish_reason"))
        spans = meta.get("weight_versions")
        # The spans come with the last event; until then there is only the server's version of the moment.
        spread = self._spread(spans, total) if spans else []
        versions = spread[before:] if spans else [self._number(meta.get("weight_version"))] * len(new)
        chunk = Chunk(
            token_ids=tuple([_token_id(entry[1]) for entry in new]),
            logprobs=tuple([_logprob(entry[0]) for entry in new]),
            versions=tuple(versions),
            finish=finish,
            cached_tokens=int(meta.get("cached_tokens") or 0) if finish is not None else 0,
            exact_versions=tuple(spread) if spans and spread[:before] != self._said else None,
        )
        self._said += versions
        return chunk

    def _check_count(self, before: int, total: object, entries: int) -> None:
        if type(total) is not int or total < before:
            raise EngineLostError(f"the engine counts {_shown(total)} tokens after {before}")
        if self._most is not None and total > self._most:
            raise EngineLostError(f"the engine sent {total} tokens of at most {self._most}")
        # What is new, or all; with no new token (an abort) SGLang may repeat the last.
        if entries < total - before or (total > before and entries not in (total - before, total)):
            raise EngineLostError(f"the engine sent {entries} log-probs for {total - before} new tokens")

    def _spread(self, spans: list[dict[str, Any]], total: int) -> list[int]:
        versions: list[int] = []
        for span in spans:
            start, end = span["start"], span["end"]
            if not len(versions) == min(start, total) <= end:
                raise EngineLostError(f"the engine's versions do not follow one another at token {len(versions)}")
            versions += [self._number(span["version"])] * (min(end, total) - len(versions))
        if len(versions) < total:
            raise EngineLostError(f"the engine gives versions of {len(versions)} tokens of {total}")
        return versions

    def _failure(self, error: Any) -> Exception:
        code, message = (error.get("code"), error.get("message")) if isinstance(error, dict) else (None, error)
        if code in (400, 413, 422) and not self._said:
            return RequestRefusedError(error_text(message))
        return EngineLostError(f"the engine failed: {error_text(message)}")


def _finish(reason: dict[str, Any] | None) -> Finish | None:
    if reason is None:
        return None
    finish = _FINISHES.get(reason["type"])
    if finish is None:
        raise EngineLostError(f"the engine ends the reply in an unknown way: {_shown(reason['type'])}")
    return finish


def _token_id(value: object) -> int:
    if type(value) is not int or value not in _TOKEN_IDS:
        raise EngineLostError(f"the engine sent {_shown(value)} as a token id")
    return value


def _logprob(value: object) -> float:
    if type(value) not in (float, int) or not _LEAST_LOGPROB <= (logprob := float(value)) <= _ROUNDING:  # type: ignore[arg-type]
        raise EngineLostError(f"the engine sent {_shown(value)} as a log-prob")
    return min(logprob, 0.0)


def _shown(value: object) -> str:
    """Return a number as it is, of anything else the kind: it may be text that was sampled."""
    return str(value) if isinstance(value, int | float) else type(value).__name__
