"""Helpers beside the tests are imported by their names."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def sglang_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether or not it is: engines are scripted, in processes of their own."""
    from gyre.backends.deploy import cell_processes

    monkeypatch.setattr(cell_processes, "_is_there", lambda package: True)
