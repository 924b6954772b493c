"""Fixtures that several test modules share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder with recorded traces beside the checkout; tests that need it are skipped where it is absent."""
    folder = Path(__file__).resolve().parents[2] / "shared"
    if not (folder / "traces").is_dir():
        pytest.skip("recorded traces are not on this machine (no folder shared/ beside the checkout)")
    return folder
