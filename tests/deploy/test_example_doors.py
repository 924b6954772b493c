"""The example `examples/doors`: what its files say to each other."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest

for package in ("aiohttp", "megatron.core", "prometheus_client", "starlette", "transformers", "uvicorn"):
    pytest.importorskip(package, reason="a real run needs the extra gyre[run]")

import example_site as site  # noqa: E402

from gyre.backends.deploy.prepared import Prepared  # noqa: E402


@pytest.fixture(scope="module")
def program() -> ModuleType:
    return site.program("doors")


@pytest.fixture(scope="module")
def prepared(program: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return site.made(program, tmp_path_factory.mktemp("doors"))


def calls(doors: Sequence[str]) -> list[site.Call | None]:
    return [("go", {"to": door}) for door in doors]


def test_the_model_is_taught_what_the_proxy_shows_it(program: ModuleType, prepared: Prepared, tmp_path: Path) -> None:
    model = site.Model(calls(site.SAME))
    walk = site.walked(prepared, site.SAME, model, tmp_path)
    assert (walk.code, walk.passed) == (0, [1, 1, 1, 1])
    assert len(model.requests) == program.LENGTH
    site.assert_taught(program, program.TOOL, prepared, model)


def test_a_door_that_was_not_named_costs_its_share(prepared: Prepared, tmp_path: Path) -> None:
    walk = site.walked(prepared, site.OTHER, site.Model(calls("aede")), tmp_path)
    assert (walk.code, walk.passed) == (0, [1, 0, 1, 1])


def test_several_doors_in_one_are_none(prepared: Prepared, tmp_path: Path) -> None:
    walk = site.walked(prepared, site.OTHER, site.Model(calls(["a\nc\nd\ne"])), tmp_path)
    assert (walk.code, walk.passed) == (0, [0, 0, 0, 0])


def test_an_error_ends_the_harness_and_is_written_down(prepared: Prepared, tmp_path: Path) -> None:
    walk = site.walked(prepared, site.OTHER, site.Model([*calls("a"), None]), tmp_path)
    assert (walk.code, walk.passed) == (1, [1, 0, 0, 0])
    assert "503" in json.loads((walk.work / "walk.json").read_text())["error"]
