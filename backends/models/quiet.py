"""Packages that talk more than a command should."""

from __future__ import annotations

import io
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr


@contextmanager
def quiet_bars() -> Iterator[None]:
    """Keep progress bars of transformers off a stderr that is no terminal, where each step would be a line."""
    if sys.stderr.isatty():
        yield
        return
    with redirect_stderr(io.StringIO()):
        yield


@contextmanager
def quiet_warnings() -> Iterator[None]:
    """Drop what megatron-core says of itself: packages it would rather have, arguments that it passes in old ways."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
