"""What polars raises where the system refuses to write a Parquet file, as other refusals are told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import polars as pl

from .errors import InputError

_MOST_CHARS: Final = 120


@contextmanager
def parquet_errors(path: Path) -> Iterator[None]:
    """Turn polars' error, as of a full disk, while `path` is written into an InputError of one line.

    Polars leaves half a file, so that a temporary one should be written: `gyre.atomic`.
    """
    try:
        yield
    except pl.exceptions.PolarsError as error:
        why = " ".join(str(error).split())[:_MOST_CHARS] or type(error).__name__
        raise InputError(f"{path}: cannot be written ({why}); free space there or give another folder") from error
