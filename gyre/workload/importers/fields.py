"""Reads single fields of JSON records: right, or absent, or a `ValueError` that makes the importer skip the record."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any, Final

MOST_TOKENS: Final = 2**40
MOST_SECONDS: Final = 1e12


def count(value: Any) -> int:
    """A whole number from 0 to `MOST_TOKENS`; `ValueError` for anything else."""
    number = number_or_none(value)
    if number is None or not 0 <= number <= MOST_TOKENS or number != int(number):
        raise ValueError(f"{value!r} is no count")
    return int(number)


def count_or_none(value: Any) -> int | None:
    """A count, None where there is no value."""
    return None if value is None else count(value)


def seconds(value: Any) -> float:
    """A finite number; `ValueError` for anything else."""
    number = number_or_none(value)
    if number is None or abs(number) > MOST_SECONDS:
        raise ValueError(f"{value!r} is no time")
    return number


def seconds_or_none(value: Any) -> float | None:
    """A time, None where there is no value."""
    return None if value is None else seconds(value)


def epoch_s(timestamp: Any) -> float:
    """Seconds since 1970 of an ISO 8601 time; `ValueError` for anything else."""
    if not isinstance(timestamp, str):
        raise ValueError(f"{timestamp!r} is no time stamp")
    return datetime.fromisoformat(timestamp).timestamp()


def number_or_none(value: Any) -> float | None:
    """A finite number as float, None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def text(value: Any) -> str | None:
    """A text that is not empty, None for anything else."""
    return value if isinstance(value, str) and value else None


def mapping(value: Any) -> dict[str, Any]:
    """A JSON object, an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def objects(value: Any) -> list[dict[str, Any]]:
    """The JSON objects in a list, none for anything else."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
