"""SGLang's reply stream, read without sockets: bytes in, chunks out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import orjson

from gyre.trajectory.call import Finish

from .engine import Chunk, EngineLostError, RequestRefusedError

_LOGPROBS: Final = b'"output_token_logprobs":['
_META: Final = b'"meta_info":'
_SMALL_BYTES: Final = 8192  # so much is parsed whole
_FINISHES: Final = {"stop": Finish.STOP, "length": Finish.LENGTH, "abort": Finish.ABORT}


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

    def __init__(self, number: Callable[[object], int]) -> None:
        self._number = number
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
        except (orjson.JSONDecodeError, KeyError, IndexError, TypeError, ValueError) as error:
            raise EngineLostError(f"the engine sent what cannot be read ({error!r}): {payload[:200]!r}") from error

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
        before, total = len(self._said), int(meta["completion_tokens"])
        if len(entries) < total - before:
            raise EngineLostError(f"the engine sent {len(entries)} log-probs for {total - before} new tokens")
        new = entries[len(entries) - (total - before) :] if total > before else []
        spans = meta.get("weight_versions")
        # The spans come with the last event; until then there is only the server's version of the moment.
        spread = self._spread(spans, total) if spans else []
        versions = spread[before:] if spans else [self._number(meta.get("weight_version"))] * len(new)
        exact = tuple(spread) if spans and spread[:before] != self._said else None
        self._said += versions
        finish = _finish(meta.get("finish_reason"))
        return Chunk(
            token_ids=tuple(int(entry[1]) for entry in new),
            logprobs=tuple(float(entry[0]) for entry in new),
            versions=tuple(versions),
            finish=finish,
            cached_tokens=int(meta.get("cached_tokens") or 0) if finish is not None else 0,
            exact_versions=exact,
        )

    def _spread(self, spans: list[dict[str, Any]], total: int) -> list[int]:
        versions: list[int] = []
        for span in spans:
            versions += [self._number(span["version"])] * (min(int(span["end"]), total) - len(versions))
        return versions + versions[-1:] * (total - len(versions))

    def _failure(self, error: Any) -> Exception:
        code, message = (error.get("code"), error.get("message")) if isinstance(error, dict) else (None, error)
        if code in (400, 413, 422) and not self._said:
            return RequestRefusedError(str(message))
        return EngineLostError(f"the engine failed: {message}")


def _finish(reason: dict[str, Any] | None) -> Finish | None:
    return None if reason is None else _FINISHES.get(reason["type"], Finish.ERROR)
