"""Logs as JSON lines: a call's events carry its execution and its id; keys and bodies never stand in them.

What is told to a harness is not logged, only its kind: an error's words repeat what a body held.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Final

_FIELDS: Final = (
    "execution", "call", "protocol", "harness", "role", "harness_thread", "state", "finish", "reason", "engine", "kind",
    "input_tokens", "reused_tokens", "output_tokens", "seconds",
)  # fmt: skip


class JsonLines(logging.Formatter):
    """Writes a record as one line of JSON; of what was given as `extra` only the fields named here."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name in _FIELDS if (value := record.__dict__.get(name)) is not None}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def log_json(level: str = "INFO") -> None:
    """Write the logs of gyre's backends, and the server's warnings, to stderr as JSON lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name, least in (("gyre.backends", level), ("uvicorn.error", "WARNING")):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(least)
        logger.propagate = False
