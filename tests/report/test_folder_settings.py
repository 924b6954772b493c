"""Which settings a results folder may be taken up with again."""

from __future__ import annotations

from pathlib import Path

import pytest

from gyre.errors import InputError
from gyre.report import ResultsFolder
from gyre.report.settings_file import read_settings


def test_settings_that_may_differ_are_taken_anew(tmp_path: Path) -> None:
    before = {"seed": 7, "proxy": {"port": 1, "bounds": {"calls": 3}, "model": "m"}}
    ResultsFolder.create(tmp_path, before).close()
    free = {"proxy.port", "proxy.bounds", "seed.port"}
    after = {"seed": 7, "proxy": {"port": 2, "bounds": {"calls": 4, "bytes": 5}, "model": "m"}}
    with pytest.raises(InputError, match=r"other settings: proxy\.port is 1 there and 2 here"):
        ResultsFolder.create(tmp_path, after, resume=True)
    renamed = {**after, "proxy": {"port": 2, "bounds": {}, "model": "n"}}
    for other, said in (({**after, "seed": 8}, "seed is 7"), (renamed, r"proxy\.model is 'm'")):
        with pytest.raises(InputError, match=f"other settings: {said}"):
            ResultsFolder.create(tmp_path, other, resume=True, free=free)
    with pytest.raises(InputError, match="--resume"):
        ResultsFolder.create(tmp_path, after, free=free)
    assert read_settings(tmp_path) == before, "what was refused changes nothing"
    ResultsFolder.create(tmp_path, after, resume=True, free=free).close()
    assert read_settings(tmp_path) == after
