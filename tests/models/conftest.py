"""Worlds of one rank for tests of models."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # helpers beside the tests, in spawned processes too


@pytest.fixture
def world() -> Iterator[None]:
    """This process as the one rank of a world."""
    from gyre.backends.models.world import world_of_one

    with world_of_one():
        yield
