"""Parquet files that are written whole and never changed, each with its size and checksum kept elsewhere."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import polars as pl
from pydantic import BaseModel, ConfigDict

from ...atomic import write_atomic
from ...errors import InputError

REMEDY: Final = "bring it back from a copy, or build the store again from the recorded calls"
OTHER_VERSION: Final = "made by another version of gyre: build it again, with --force"
COMPRESSION_LEVEL: Final = 3  # of zstd; 9 gains 4 % for three times the time


class CheckedFile(BaseModel):
    """A file's name in its folder, and what its bytes must be."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    size: int  # bytes
    blake2b: str  # of 128 bits, in hexadecimal


class DamagedFileError(InputError):
    """A file's bytes are not those that were written."""


class MissingFileError(InputError):
    """A file that should be there is not."""


def write_table(path: Path, frame: pl.DataFrame) -> CheckedFile:
    """Write `frame` as Parquet, atomically, and return its size and checksum.

    The bytes are made in memory first, so that the checksum is of what was meant, not of what the disk made of it.

    Raises:
        InputError: the system refuses, for example because the disk is full.
    """
    buffer = io.BytesIO()
    frame.write_parquet(buffer, compression="zstd", compression_level=COMPRESSION_LEVEL, statistics=False)
    return write_checked(path, buffer.getvalue())


def write_checked(path: Path, content: bytes) -> CheckedFile:
    """Write a file's bytes, atomically, and return their size and checksum; errors as in `write_table`."""
    write_atomic(path, lambda temporary: temporary.write_bytes(content))
    return CheckedFile(name=path.name, size=len(content), blake2b=_checksum(content))


def read_table(folder: Path, file: CheckedFile, schema: Mapping[str, Any]) -> pl.DataFrame:
    """Read a file's table after a check of its bytes; damaged bytes never reach the Parquet reader.

    Raises:
        DamagedFileError: its size or checksum is another.
        MissingFileError: it is not there.
        InputError: its columns are not those of `schema`.
    """
    frame = pl.read_parquet(io.BytesIO(checked_bytes(folder, file)))
    if frame.schema != pl.Schema(schema):
        raise InputError(f"{folder}: {file.name} has other columns; {OTHER_VERSION}")
    return frame


def checked_bytes(folder: Path, file: CheckedFile) -> bytes:
    """Return a file's bytes; errors as in `read_table`."""
    path = folder / file.name
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise MissingFileError(f"{path}: missing; {REMEDY}") from error
    except OSError as error:
        raise DamagedFileError(f"{path}: cannot be read ({error.strerror}); {REMEDY}") from error
    if len(content) != file.size:
        raise DamagedFileError(f"{path}: damaged, {len(content)} bytes of {file.size}; {REMEDY}")
    if _checksum(content) != file.blake2b:
        raise DamagedFileError(f"{path}: damaged, its checksum is another; {REMEDY}")
    return content


def _checksum(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()
