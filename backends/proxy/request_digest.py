"""What makes two requests the same one."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

import orjson

from .call import DIGEST_LENGTH
from .conversation import Request

# A harness may ask for a stream first and, once that broke, for a plain reply: it is still the same call.
_HOW_NOT_WHAT: Final = ("stream", "stream_options")
_WHO: Final = ("session", "thread", "parent_thread", "agent", "kind")


def request_digest(wire: str, body: Mapping[str, Any], raw: bytes, request: Request) -> str:
    """Return what a retry of a request has in common with it, and no other request has.

    `raw` is the body as it came, which stands in for one that JSON cannot write again.
    """
    who = "\0".join(request.labels.get(label, "") for label in _WHO)
    try:
        # Sorted: codex writes some objects in another order each time.
        asked = {name: value for name, value in body.items() if name not in _HOW_NOT_WHAT}
        what = orjson.dumps(asked, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:  # nested deeper than it writes
        what = raw
    found = hashlib.blake2b(what, digest_size=DIGEST_LENGTH // 2, person=wire.encode())
    found.update(who.encode("utf-8", "surrogatepass"))
    return found.hexdigest()
