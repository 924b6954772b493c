"""Failures as OpenAI's protocols tell them: status, type and code."""

from __future__ import annotations

from typing import Any, Final

from ..reply import Failure

_TELLING: Final = {  # of each kind of failure: status, type, code
    "invalid_request": (400, "invalid_request_error", None),
    "unauthorized": (401, "authentication_error", "invalid_api_key"),
    "forbidden": (403, "permission_error", None),
    "not_found": (404, "not_found_error", None),
    "too_large": (413, "invalid_request_error", "request_too_large"),
    "too_long": (400, "invalid_request_error", "context_length_exceeded"),
    "rate_limited": (429, "rate_limit_error", "rate_limit_exceeded"),
    "overloaded": (503, "server_error", "overloaded"),
    "ended": (403, "permission_error", "execution_ended"),
    "internal": (500, "server_error", "server_error"),
}


def status(failure: Failure) -> int:
    """Return the HTTP status."""
    return _TELLING.get(failure.kind, _TELLING["internal"])[0]


def code(failure: Failure) -> str:
    """Return the code by which clients tell failures apart."""
    _, type_, code_ = _TELLING.get(failure.kind, _TELLING["internal"])
    return code_ or type_


def message(failure: Failure) -> str:
    """Return the sentence; of a prompt that does not fit, the one that clients search for."""
    if failure.kind == "too_long" and failure.max_prompt_tokens:
        return (
            f"This model's maximum context length is {failure.max_prompt_tokens} tokens. However, your messages "
            f"resulted in {failure.prompt_tokens} tokens. Please reduce the length of the messages."
        )
    return failure.message


def body(failure: Failure) -> dict[str, Any]:
    """Return the body."""
    _, type_, code_ = _TELLING.get(failure.kind, _TELLING["internal"])
    return {"error": {"message": message(failure), "type": type_, "param": None, "code": code_}}
