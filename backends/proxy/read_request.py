"""A request from the bytes of its body."""

from __future__ import annotations

from collections.abc import Mapping

from .conversation import Request
from .counts import require_counts
from .request_digest import request_digest
from .wires import WIRES, read_json


def read_request(wire: str, raw: bytes, headers: Mapping[str, str]) -> tuple[Request, str]:
    """Return the request that a body of this protocol holds, and its digest.

    Raises:
        BadRequestError: it cannot be understood.
        RecursionError: it is nested deeper than can be read.
    """
    body = read_json(raw)
    request = require_counts(WIRES[wire].parse(body, headers))
    return request, request_digest(wire, body, raw, request)
