"""Requests that real harnesses sent, recorded."""

from __future__ import annotations

import json
import tarfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest


@cache
def recorded(folder: Path) -> tuple[dict[str, Any], ...]:
    """Return every recorded request under `folder`: harness, path, headers by lower-case name, body."""
    archive = folder / "harness" / "recordings.tar.xz"
    if not archive.exists():
        pytest.skip("recorded requests of harnesses are not on this machine")
    found = []
    with tarfile.open(archive) as files:
        for member in files.getmembers():
            lines = files.extractfile(member)
            for line in lines or ():
                record = json.loads(line)
                record["headers"] = {name.lower(): value for name, value in record["headers"]}
                found.append(record)
    return tuple(found)
