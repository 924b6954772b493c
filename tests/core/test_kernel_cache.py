"""Compiled kernels: those that a change of another file has made stale are removed, and no others."""

from __future__ import annotations

import os
from pathlib import Path

from kernel_cache import PACKAGES, ROOT, drop_stale_kernels, newest_sources, source_files


def test_a_kernel_is_dropped_when_a_file_changes_that_its_own_leads_to(tmp_path: Path) -> None:
    sources = {
        "gyre/constants.py": "WIDTH = 3\n",
        "gyre/inner.py": "from .constants import WIDTH\n@kernel\ndef inner():\n    return WIDTH\n",
        "gyre/outer.py": "from . import inner\n@kernel\ndef outer():\n    return inner.inner()\n",
        "gyre/apart.py": "from .constants import WIDTH\n@kernel\ndef f():\n    return 1\ndef g():\n    return WIDTH\n",
        "sim/__init__.py": "",
        "sim/loop.py": "from gyre.constants import WIDTH\nTWICE = 2 * WIDTH\n@kernel\ndef f():\n    return TWICE\n",
    }
    for name, text in sources.items():
        path = tmp_path / name
        (path.parent / "__pycache__").mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (100, 100))
    kernels = {name: tmp_path / name for name in ("gyre/outer", "gyre/apart", "sim/loop")}
    indices = [path.parent / "__pycache__" / f"{path.name}.walk-7.py311.nbi" for path in kernels.values()]
    for index in indices:
        index.touch()
        os.utime(index, (200, 200))
    assert drop_stale_kernels(tmp_path) == 0
    os.utime(tmp_path / "gyre/constants.py", (300, 300))
    assert drop_stale_kernels(tmp_path) == 2
    assert [index.exists() for index in indices] == [False, True, False]


def test_every_file_with_kernels_is_looked_at() -> None:
    with_kernels = {
        path
        for folder in PACKAGES.values()
        for path in (ROOT / folder).rglob("*.py")
        if "\n@kernel\n" in path.read_text() or "\n@entry_kernel\n" in path.read_text()
    }
    assert with_kernels
    assert with_kernels <= newest_sources(source_files(ROOT)).keys()
