"""What `gyre.trajectory` offers: every name is there, and none costs anything before it is used."""

from __future__ import annotations

import subprocess
import sys

from gyre import trajectory

HEAVY = ("numpy", "numba", "polars", "torch", "plotly", "rich", "pydantic")


def test_every_name_is_there_and_is_what_its_home_defines() -> None:
    assert trajectory.__all__ == sorted(trajectory.__all__)
    assert dir(trajectory) == trajectory.__all__
    for name in trajectory.__all__:
        found = getattr(trajectory, name)
        assert found.__module__.startswith("gyre.")
        assert found.__name__ == name
        assert found.__doc__


def test_an_unknown_name_is_refused_as_by_any_module() -> None:
    assert not hasattr(trajectory, "no_such_name")


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = f"import sys, gyre.trajectory; print([name for name in {HEAVY} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_all_names_together_load_no_torch() -> None:
    code = "import sys; from gyre.trajectory import *; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
