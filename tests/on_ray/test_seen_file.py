"""Whether two machines see the same file, without Ray."""

from __future__ import annotations

from pathlib import Path

import pytest

from gyre.backends.on_ray import seen_file
from gyre.backends.on_ray.seen_file import SeenFile, probe
from gyre.errors import InputError


def test_a_probe_is_seen_while_it_is_there_and_under_its_path_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seen_file, "_PATIENCE_S", 0.0)
    with probe(tmp_path) as first, probe(tmp_path) as second:
        assert first.is_seen()
        assert first.digest != second.digest
        assert not SeenFile(first.path, second.digest).is_seen(), "another file under this path"
        assert not SeenFile(tmp_path / "elsewhere", first.digest).is_seen()
    assert not first.is_seen()
    assert not list(tmp_path.iterdir())


def test_what_this_machine_itself_cannot_read_or_write_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"config.json: cannot be read \(No such file"):
        SeenFile.of(tmp_path / "config.json")
    with pytest.raises(InputError, match="cannot be written"), probe(tmp_path / "nowhere"):
        pass
