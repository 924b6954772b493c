"""What is left of a generation after some of its tokens have come. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from gyre.trajectory.call import Finish

from .engine import Chunk, Generation

Decode = Callable[[Sequence[int]], str]


class Continuation:
    """A generation, the tokens that have come so far, and what to ask of the next engine.

    To the next engine the tokens so far are input. It counts the fewest and the most new tokens from there, which is
    put right here, and looks for stop strings from there, so that one which spans the seam would be missed: with
    `decode` (token ids to text, special tokens included) those are found here. Without it a reply goes on past them.
    """

    def __init__(self, generation: Generation, decode: Decode | None = None) -> None:
        self._first = generation
        self._decode = decode
        self._seam = 0  # tokens before the engine of the moment
        self.token_ids: list[int] = []
        self.versions: list[int] = []

    def rest(self, attempt: int, max_new_tokens: int) -> Generation:
        """Return what the next engine is to do, under a request id of its own; the seam is here from now on."""
        first, done = self._first, len(self.token_ids)
        so_far = np.array(self.token_ids, np.int32)
        self._seam = done
        return Generation(
            request_id=f"{first.request_id}.{attempt}",
            input_ids=np.concatenate((first.input_ids, so_far)),
            sampling=replace(
                first.sampling,
                max_new_tokens=max_new_tokens,
                min_new_tokens=max(0, first.sampling.min_new_tokens - done),
            ),
            continued_tokens=first.continued_tokens + done,
        )

    def left(self) -> int:
        """Tokens that may still come."""
        return self._first.sampling.max_new_tokens - len(self.token_ids)

    def input_tokens(self) -> int:
        """Tokens that the next engine gets as input."""
        return len(self._first.input_ids) + len(self.token_ids)

    def take(self, chunk: Chunk) -> Chunk:
        """Add what came; return what it is to the whole reply: cut at a stop string that spans the seam, with versions
        of all its tokens, an ABORT not told (the reply goes on)."""
        chunk = self._cut(chunk)
        self.token_ids += chunk.token_ids
        self.versions += chunk.versions
        exact = chunk.exact_versions
        if chunk.finish is None and exact is None:
            return chunk
        if exact is not None:
            exact = (*self.versions[: self._seam], *exact)
            self.versions = list(exact)
        return replace(
            chunk,
            finish=None if chunk.finish is Finish.ABORT else chunk.finish,
            cached_tokens=min(chunk.cached_tokens, len(self._first.input_ids)),
            exact_versions=exact,
        )

    def ended(self) -> Finish | None:
        """How the reply has ended, where an engine that was lost could no longer say so."""
        sampling = self._first.sampling
        last = self.token_ids[-1:]
        if last and last[0] in sampling.stop_token_ids and len(self.token_ids) > sampling.min_new_tokens:
            return Finish.STOP
        return Finish.LENGTH if self.left() <= 0 else None

    def _cut(self, chunk: Chunk) -> Chunk:
        stops = self._first.sampling.stop
        # A token may hold one byte of four: what ends further than this from the seam began after it.
        reach = 4 * max(map(len, stops), default=0)
        since = len(self.token_ids) - self._seam
        if self._decode is None or not self._seam or since >= reach:
            return chunk
        window = self.token_ids[max(0, self._seam - reach) :]
        # A character that the seam divides ends after it.
        seam = len(self._decode(window[: len(window) - since]).rstrip("\ufffd"))
        for count in range(1, min(len(chunk.token_ids), reach - since) + 1):
            text = self._decode([*window, *chunk.token_ids[:count]])
            if any(text.find(stop, max(0, seam - len(stop) + 1)) >= 0 for stop in stops):
                return _first_tokens(chunk, count, since)
        return chunk


def _first_tokens(chunk: Chunk, count: int, since: int) -> Chunk:
    """Cut a chunk that came `since` tokens after the seam."""
    exact = chunk.exact_versions
    return replace(
        chunk,
        token_ids=chunk.token_ids[:count],
        logprobs=chunk.logprobs[:count],
        versions=chunk.versions[:count],
        finish=Finish.STOP,
        exact_versions=None if exact is None else exact[: since + count],
    )
