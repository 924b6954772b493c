"""Counts the matches of a pattern in a text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

_MOST_CHARACTERS: Final = 100  # of a match that is told


def judge(question: Mapping[str, Any]) -> dict[str, Any]:
    """Count the matches, no further than the bounds need."""
    flags = re.NOFLAG
    for flag in question["flags"]:
        flags |= re.RegexFlag[flag.upper()]
    try:
        pattern = re.compile(question["pattern"], flags)
    except (re.error, OverflowError, RecursionError, ValueError) as error:
        return {"broken": f"no regular expression: {error}"}
    least, most = question["at_least"], question["at_most"]
    found = list(islice(pattern.finditer(question["text"]), least if most is None else most + 1))
    if len(found) < least:
        return {"passed": 0.0, "detail": f"{len(found)} matches, {least} at least"}
    if most is not None and len(found) > most:
        return {"passed": 0.0, "detail": f"more than {most} matches, such as {found[-1][0][:_MOST_CHARACTERS]!r}"}
    return {"passed": 1.0, "detail": ""}
