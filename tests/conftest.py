"""Fixtures that several test modules share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from kernel_cache import drop_stale_kernels

# Kernels compile on first use and machines differ: no test depends on how long an example takes.
settings.register_profile("gyre", deadline=None)
settings.load_profile("gyre")


def pytest_configure(config: pytest.Config) -> None:
    """Begin with compiled kernels that are those of the sources."""
    if not hasattr(config, "workerinput"):  # once, before pytest-xdist starts its workers
        drop_stale_kernels()


@pytest.hookimpl(optionalhook=True)  # xdist's
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Spread tests as `--dist load` does, but run all of a module `test_*_real.py` in one worker.

    Those share a server that takes a minute to start. xdist's own groups rewrite node ids, which pytest 9.2 forbids.
    """
    if config.getvalue("dist") != "load":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class OneWorkerForRealServers(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "real" if nodeid.partition("::")[0].endswith("_real.py") else nodeid

    return OneWorkerForRealServers(config, log)


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder with recorded traces beside the checkout; tests that need it are skipped where it is absent."""
    folder = Path(__file__).resolve().parents[2] / "shared"
    if not (folder / "traces").is_dir():
        pytest.skip("recorded traces are not on this machine (no folder shared/ beside the checkout)")
    return folder
