"""What becomes of images, sounds and files: the model reads text only."""

from __future__ import annotations

from ..wire import BadRequestError
from .fields import Fields


def refused(part: Fields, kind: str) -> BadRequestError:
    """Return the error of a part that somebody sent on purpose."""
    return BadRequestError(f"{part.path('type')} is {kind[:40]!r}: this model reads text only; send parts of type text")


def omitted(kind: str) -> str:
    """Return the remark in place of a part of a tool's result.

    The agent may have come upon it by chance, and every later request repeats it: refused, it would end the run.
    """
    return f"[{kind[:40]} omitted: this model reads text only]"
