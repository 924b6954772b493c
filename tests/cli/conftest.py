"""A call log and the store made of it, for the tests of all `gyre samples` commands."""

from __future__ import annotations

from pathlib import Path

import pytest
from samples_command import ok, write_log


@pytest.fixture(scope="session")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_log(tmp_path_factory.mktemp("log") / "run.calls")


@pytest.fixture(scope="session")
def store(log: Path) -> Path:
    out = log.parent / "store"
    ok("build", log, "--out", out)
    return out
