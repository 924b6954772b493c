"""Samples as one dict of torch tensors on the CPU: the fields of `csr`, with tokens, edges and row_execution int64."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import InputError
from ..samples import Samples
from . import csr, plain

SUMMARY = "one dict of torch tensors, CSR rows (needs torch)"
LOST = csr.LOST

_INDICES = ("tokens", "row_execution")  # torch looks up embeddings and rows with int64


def export(samples: Samples) -> dict[str, Any]:
    """Return the tensors; those of the samples' own arrays share memory with them.

    Raises:
        InputError: torch is not installed.
    """
    try:
        from ..objectives.tensors import to_tensors
    except ImportError as error:
        raise InputError("format torch needs torch: pip install 'gyre[torch]'") from error
    arrays = csr.export(samples)
    return dict(to_tensors({**arrays, **{name: arrays[name].astype(np.int64) for name in _INDICES}}))


load = csr.load
records = csr.records


def from_records(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the tensors of rows as `plain` has them."""
    return export(plain.load(rows))
