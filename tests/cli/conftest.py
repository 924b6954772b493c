"""What tests of commands share: signals that are heard, a call log and the store made of it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from samples_command import ok, write_log


@pytest.fixture(autouse=True)
def _ctrl_c_is_heard() -> Iterator[None]:
    """Hear SIGINT, here and in processes that tests start, also where the tests run as a shell's background job."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_log(tmp_path_factory.mktemp("log") / "run.calls")


@pytest.fixture(scope="session")
def store(log: Path) -> Path:
    out = log.parent / "store"
    ok("build", log, "--out", out)
    return out
