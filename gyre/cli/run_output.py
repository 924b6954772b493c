"""What libraries and processes print goes to a file, so that only the view is on the screen."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TextIO

from ..atomic import disk_errors

_PRINTED: Final = "printed.log"


@contextmanager
def captured_output(logs: Path) -> Iterator[TextIO]:
    """Let all that this process and its children print go to a file in `logs`; yield what leads to the screen."""
    with disk_errors(logs):
        logs.mkdir(exist_ok=True)
        file = os.open(logs / _PRINTED, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(1), os.dup(2)]
    try:
        os.dup2(file, 1)
        os.dup2(file, 2)
        with os.fdopen(os.dup(kept[0]), "w", encoding="utf-8", errors="replace") as screen:
            yield screen
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, descriptor in zip((1, 2), kept, strict=True):
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.close(file)
