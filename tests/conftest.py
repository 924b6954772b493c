"""Fixtures that several test modules share."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

# Kernels compile on first use and machines differ: no test depends on how long an example takes.
settings.register_profile("gyre", deadline=None)
settings.load_profile("gyre")


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder with recorded traces beside the checkout; tests that need it are skipped where it is absent."""
    folder = Path(__file__).resolve().parents[2] / "shared"
    if not (folder / "traces").is_dir():
        pytest.skip("recorded traces are not on this machine (no folder shared/ beside the checkout)")
    return folder
