"""The list of models, which is one."""

from __future__ import annotations

import orjson


def models_page(model: str) -> bytes:
    """Return the list of models, in a form that OpenAI's and Anthropic's clients both read."""
    one = {
        "id": model, "object": "model", "created": 0, "owned_by": "gyre", "type": "model", "display_name": model,
        "created_at": "1970-01-01T00:00:00Z",
    }  # fmt: skip
    page = {"object": "list", "data": [one], "has_more": False, "first_id": model, "last_id": model}
    return orjson.dumps(page)
