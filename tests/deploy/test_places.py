"""Where a run keeps what cells of one machine share."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="a run needs the extra gyre[run]")

from gyre.backends.deploy import places


def test_a_link_that_was_planted_in_shared_memory_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, run = tmp_path / "memory", tmp_path / "run"
    memory.mkdir()
    run.mkdir()
    monkeypatch.setattr(places, "_MEMORY", memory)
    shared = places.Places(run).shared(1)
    assert shared.parent == memory
    assert places.Places(run).shared(1) == shared, "what a killed driver left is used again"
    shared.rmdir()
    (tmp_path / "elsewhere").mkdir()
    shared.symlink_to(tmp_path / "elsewhere")
    assert places.Places(run).shared(1) == run / "snapshots"
