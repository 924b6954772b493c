"""Stand-ins for media: what keeps equal placeholders of different content apart in the tree."""

from __future__ import annotations

import numpy as np

from ...arrays import Int32Array, Int64Array
from ..call import Media


class StandIns:
    """One negative id for each (token id, digest, length) seen; it stands in for the medium's first placeholder."""

    def __init__(self) -> None:
        self._id: dict[tuple[int, str, int], int] = {}

    def put(self, input_ids: Int32Array, media: tuple[Media, ...]) -> Int32Array:
        """Return a copy of `input_ids` with the stand-ins."""
        ids = input_ids.copy()
        for medium in media:
            key = (int(input_ids[medium.position]), medium.digest, medium.length)
            ids[medium.position] = self._id.setdefault(key, -1 - len(self._id))
        return ids

    def take(self, tokens: Int32Array) -> tuple[Int64Array, Int64Array, tuple[str, ...]]:
        """Put the real ids back into `tokens`; return the position, length and digest of each medium in them."""
        if not self._id:
            return np.empty(0, np.int64), np.empty(0, np.int64), ()
        known = list(self._id)
        position = np.flatnonzero(tokens < 0)
        found = [known[-1 - stand_in] for stand_in in tokens[position].tolist()]
        tokens[position] = [token for token, _, _ in found]
        return position, np.array([length for _, _, length in found], np.int64), tuple(digest for _, digest, _ in found)
