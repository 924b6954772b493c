"""Logs as JSON lines: a call's events carry its execution and its id; keys and bodies never stand in them.

What is told to a harness is not logged, only its kind: an error's words repeat what a body held. For the same reason
an exception is logged as its kind and the places that it went through, without its message.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

_FIELDS: Final = (
    "execution", "call", "protocol", "harness", "role", "harness_thread", "state", "finish", "reason", "engine", "kind",
    "input_tokens", "reused_tokens", "output_tokens", "seconds", "version", "cell", "step",
)  # fmt: skip


_MOST_CHARACTERS: Final = 2000  # of a message
_MOST_ERRORS: Final = 5
_MOST_FRAMES: Final = 12


class JsonLines(logging.Formatter):
    """Writes a record as one line of JSON; of what was given as `extra` only the fields named here."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage()[:_MOST_CHARACTERS],
        }
        line |= {name: value for name in _FIELDS if (value := record.__dict__.get(name)) is not None}
        if record.exc_info:
            line["exception"] = _where(record.exc_info[1])
        return json.dumps(line, default=str)


def _where(error: BaseException | None) -> list[str]:
    """Return kinds and places of an exception and of those that led to it, the newest first."""
    found: list[str] = []
    while error is not None and len(found) < _MOST_ERRORS:
        frames = traceback.extract_tb(error.__traceback__)[-_MOST_FRAMES:]
        places = " > ".join(f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames)
        number = f" {error.errno}" if isinstance(error, OSError) and error.errno else ""
        found.append(f"{type(error).__name__}{number} at {places}")
        error = error.__cause__ or error.__context__
    return found


def log_json(level: str = "INFO", handler: logging.Handler | None = None) -> None:
    """Write the logs of gyre's backends, and the server's warnings, as JSON lines, to stderr if not to `handler`.

    SGLang's parsers, which log what they cannot read, log nothing.
    """
    handler = handler or logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name, least in (("gyre.backends", level), ("uvicorn.error", "WARNING"), ("asyncio", "ERROR")):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(least)
        logger.propagate = False
    logging.getLogger("sglang").setLevel(logging.CRITICAL + 1)
