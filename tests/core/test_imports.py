"""What importing gyre loads, and that its parts are found from anywhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("simpy", "torch", "fastapi", "starlette", "uvicorn", "aiohttp", "numba", "polars", "gyre.sim", "gyre.backends")


def run(code: str, folder: Path) -> str:
    return subprocess.run([sys.executable, "-c", code], cwd=folder, check=True, capture_output=True, text=True).stdout


def test_importing_gyre_loads_nothing_heavy(tmp_path: Path) -> None:
    loaded = run(f"import gyre, sys; print([name for name in {HEAVY} if name in sys.modules])", tmp_path)
    assert loaded.strip() == "[]"


def test_importing_the_scheduler_loads_no_cluster(tmp_path: Path) -> None:
    code = "import gyre.controller, gyre.policies, gyre.replay, sys"
    loaded = run(f"{code}; print([name for name in {HEAVY} if name in sys.modules])", tmp_path)
    assert loaded.strip() == "[]"


@pytest.mark.parametrize("package", ["gyre.sim", "gyre.backends", "gyre.traces", "gyre.sim.serving"])
def test_packages_at_the_root_are_imported_below_gyre(package: str, tmp_path: Path) -> None:
    assert run(f"import {package} as p; print(p.__name__)", tmp_path).strip() == package


def test_a_wheel_holds_code_and_data(tmp_path: Path) -> None:
    """Built and unpacked apart from the checkout: modules import, profiles and hardware are there."""
    root = Path(__file__).resolve().parents[2]
    build = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target", "tree"]
    made = subprocess.run([*build, str(root)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    code = (
        "import sys; sys.path.insert(0, 'tree'); import gyre.sim, gyre.backends; assert 'tree' in gyre.sim.__file__;"
        "from gyre.workload.profiles import profile_names; from gyre.sim.hardware_profile import hardware_names;"
        "print(len(profile_names()), len(hardware_names()))"
    )
    profiles, hardware = run(code, tmp_path).split()
    assert int(profiles) >= 6
    assert int(hardware) >= 6
