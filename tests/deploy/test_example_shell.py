"""The example `examples/shell`: what its files and the real mini-swe-agent say to each other."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

import pytest

for package in ("aiohttp", "megatron.core", "prometheus_client", "starlette", "transformers", "uvicorn"):
    pytest.importorskip(package, reason="a real run needs the extra gyre[run]")

sys.path.append(str(Path(__file__).parents[1] / "backends"))

import example_site as site  # noqa: E402
from harnesses import MINI  # noqa: E402

from gyre.backends.deploy.prepared import Prepared  # noqa: E402


@pytest.fixture(scope="module")
def program() -> ModuleType:
    return site.program("shell")


@pytest.fixture(scope="module")
def prepared(program: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prepared]:
    """With the real harness on the PATH; skips where there is none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(MINI.path().parent), prepend=os.pathsep)
        yield site.made(program, tmp_path_factory.mktemp("shell"))


def calls(program: ModuleType, doors: Sequence[str]) -> list[site.Call | None]:
    return [("bash", {"command": command}) for command in (*(f"./go {door}" for door in doors), program.SUBMIT)]


def test_the_model_is_taught_what_the_proxy_shows_it(program: ModuleType, prepared: Prepared, tmp_path: Path) -> None:
    model = site.Model(calls(program, site.SAME))
    walk = site.walked(prepared, site.SAME, model, tmp_path)
    assert (walk.code, walk.passed) == (0, [1, 1, 1, 1])
    assert json.loads((walk.work / "mini.traj.json").read_text())["info"]["exit_status"] == "Submitted"
    assert len(model.requests) == program.LENGTH + 1
    assert all(request["tools"] == [program.BASH] for request in model.requests)
    site.assert_taught(program, program.BASH, prepared, model)


def test_an_error_ends_the_harness_and_is_written_down(program: ModuleType, prepared: Prepared, tmp_path: Path) -> None:
    model = site.Model([*calls(program, "a")[:1], None])
    walk = site.walked(prepared, site.OTHER, model, tmp_path)
    assert (walk.code, walk.passed) == (1, [1, 0, 0, 0])
    info = json.loads((walk.work / "mini.traj.json").read_text())["info"]
    assert info["exit_status"] == "ServiceUnavailableError"
    assert len(model.requests) == 2, "it asks once"


def test_a_door_that_was_not_named_costs_its_share(program: ModuleType, prepared: Prepared, tmp_path: Path) -> None:
    task = next(task for task in prepared.tasks if task.name == site.OTHER)
    assert task.files is not None
    work = tmp_path / "work"
    shutil.copytree(task.files, work)
    signs = [subprocess.check_output(["./go", door], cwd=work, text=True) for door in "aede"]
    assert signs == ["c\n", "d\n", "e\n", f"{program.OUTSIDE}\n"]
    assert site.judged(prepared, task, work) == [1, 0, 1, 1]
