"""The official client packages in front of what the encoders write: real clients and decoders, bytes in odd pieces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter

anthropic = pytest.importorskip("anthropic", reason="the official client reads the replies here")
openai = pytest.importorskip("openai", reason="the official client reads the replies here")
httpx = pytest.importorskip("httpx")

# Fields that servers of open models add, which the official types do not know.
EXTENSIONS = {"reasoning_content", "token_ids", "prompt_token_ids", "namespace"}
# Required by some versions of the openai package, unknown to others.
OF_SOME_VERSIONS = {"response.function_call_arguments.done": {"name"}}


def pieces(data: bytes, cuts: Sequence[int]) -> Iterator[bytes]:
    """Yield `data` in pieces of the sizes `cuts`, over and over."""
    at = turn = 0
    while at < len(data):
        size = cuts[turn % len(cuts)] if cuts else len(data)
        yield data[at : at + size]
        at, turn = at + size, turn + 1


def strict(type_: Any, event: BaseModel) -> None:
    """Check that an event that a client made is one of `type_`, with all that it needs and nothing that it lacks."""
    raw = event.to_dict()
    checked = _adapter(type_).validate_python(raw)
    extras = set(_extras(checked))
    assert extras <= EXTENSIONS | OF_SOME_VERSIONS.get(raw.get("type", ""), set()), (extras, raw)


@cache
def _adapter(type_: Any) -> TypeAdapter[Any]:
    return TypeAdapter(type_)


def _extras(value: object) -> Iterator[str]:
    if isinstance(value, BaseModel):
        yield from value.model_extra or ()
        for name in value.model_fields_set:
            yield from _extras(getattr(value, name))
    elif isinstance(value, list):
        for one in value:
            yield from _extras(one)


def _answer(http: Any, data: bytes, media_type: str, cuts: Sequence[int], status: int) -> Any:
    class Stream(http.SyncByteStream):  # type: ignore[misc]
        def __iter__(self) -> Iterator[bytes]:
            yield from pieces(data, cuts)

    def handle(request: Any) -> Any:
        return http.Response(status, headers={"content-type": media_type}, stream=Stream())

    return http.Client(transport=http.MockTransport(handle))


def openai_client(data: bytes, media_type: str, cuts: Sequence[int] = (), status: int = 200) -> Any:
    """Return OpenAI's client in front of a server that answers `data`."""
    http = _answer(httpx, data, media_type, cuts, status)
    return openai.OpenAI(api_key="k", base_url="http://server/v1", http_client=http, max_retries=0)


def anthropic_client(data: bytes, media_type: str, cuts: Sequence[int] = (), status: int = 200) -> Any:
    """Return Anthropic's client in front of a server that answers `data`; it brings an HTTP client of its own."""
    http = __import__(anthropic.DefaultHttpxClient.__mro__[1].__module__.split(".")[0])
    client = _answer(http, data, media_type, cuts, status)
    return anthropic.Anthropic(api_key="k", base_url="http://server", http_client=client, max_retries=0)
