"""Samples for other trainers, and samples from them: one module a format, one registry.

Each module says which fields its trainer takes, how that trainer's mean over them comes out as
loss = -sum over tokens of A_e / (N_e * E) times the objective, and which of its settings must be chosen for that. What
a format cannot carry is in its `LOST`; it comes back as the default of `Samples`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Protocol

from ...errors import InputError
from ..samples import Samples
from . import csr, plain, prime_rl, skyrl, slime, tinker, torch_csr, trl, verl
from .files import Record, read_records, write_records


class Format(Protocol):
    """A module of this package."""

    SUMMARY: str  # one line for people
    LOST: str  # what of samples it cannot carry

    @property
    def export(self) -> Callable[..., Any]:
        """Of samples and options, the trainer's data."""

    @property
    def load(self) -> Callable[..., Samples]:
        """Of the trainer's data, samples."""

    @property
    def records(self) -> Callable[[Any], list[Record]]:
        """Of the trainer's data, one dict a row, for files."""

    @property
    def from_records(self) -> Callable[[list[Record]], Any]:
        """The inverse of `records`."""


FORMATS: Final[Mapping[str, Format]] = MappingProxyType(
    {
        "slime": slime,
        "miles": slime,
        "verl": verl,
        "skyrl": skyrl,
        "prime-rl": prime_rl,
        "trl": trl,
        "tinker": tinker,
        "lists": plain,
        "numpy": csr,
        "torch": torch_csr,
    }
)


def formats() -> tuple[str, ...]:
    """Return the names of all formats."""
    return tuple(FORMATS)


def export(samples: Samples, format: str, **options: Any) -> Any:
    """Return samples as a trainer takes them.

    Args:
        samples: a whole step; formats with absolute weights ("verl", "tinker" and the plain ones) take any part of one.
        format: one of `formats`.
        options: keyword arguments of the format's `export`.

    Raises:
        InputError: no such format or option, nothing is trained, or a part of a step where the whole is needed.
    """
    require_options(format, options)
    return _format(format).export(samples, **options)


def require_options(format: str, options: Iterable[str]) -> None:
    """Check the names of a format's options.

    Raises:
        InputError: no such format, or it has no such option.
    """
    known = list(inspect.signature(_format(format).export).parameters)[1:]
    for name in options:
        if name not in known:
            raise InputError(f"format {format} has no option {name}; it has {', '.join(known) or 'none'}")


def load(data: Any, format: str) -> Samples:
    """Return the samples behind a trainer's data.

    Weights come from the trainer's advantages and its mean over tokens, rows or executions; N_e and E are counted.

    Raises:
        InputError: no such format, a field lacks, or a row cannot be read.
    """
    module = _format(format)
    try:
        return module.load(data)
    except KeyError as error:
        raise InputError(f"format {format}: field {error} lacks") from error


def write(samples: Samples, format: str, path: Path | str, **options: Any) -> None:
    """Write samples in a trainer's fields, one row of them a line (.jsonl) or a row (.parquet), atomically.

    Padding is left out; `read` puts it back.

    Raises:
        InputError: see `export`; or the suffix is another, or the system refuses.
    """
    write_records(_format(format).records(export(samples, format, **options)), Path(path))


def read(format: str, path: Path | str) -> Any:
    """Read what `write` wrote: the trainer's data, as `export` returns it and `load` takes it.

    Raises:
        InputError: no such format, or the file cannot be read.
    """
    module = _format(format)
    rows = read_records(Path(path))
    try:
        return module.from_records(rows)
    except KeyError as error:
        raise InputError(f"{path}: field {error} of format {format} lacks") from error


def _format(name: str) -> Format:
    if name not in FORMATS:
        raise InputError(f"there is no format {name!r}; choose one of {', '.join(FORMATS)}")
    return FORMATS[name]
