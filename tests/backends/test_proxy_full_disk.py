"""The log cannot be written: nothing unrecorded is delivered, no score is lost, and all goes on afterwards."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

httpx = pytest.importorskip("httpx")
for package in ("aiohttp", "prometheus_client", "starlette", "transformers", "uvicorn"):
    pytest.importorskip(package, reason="the proxy needs the extra gyre[proxy]")

from proxy_bench import Bench, bench, renderer_of, saying  # noqa: E402

from gyre.backends.engines.scripted import ScriptedEngine  # noqa: E402
from gyre.backends.proxy import recorder  # noqa: E402
from gyre.trajectory.call_log import CallLog  # noqa: E402


@pytest.fixture
def running(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> Iterator[Bench]:
    renderer = renderer_of(tmp_path_factory.getbasetemp() / "proxy-tokenizer")
    with bench(renderer, tmp_path / "out", lambda: [ScriptedEngine("one", saying(renderer, "Yes."))]) as made:
        yield made


def refuse_writes(patch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    patch.setattr(os, "pwrite", full)


def ask(opened: Any, text: str) -> Any:
    body = {"model": "m", "messages": [{"role": "user", "content": text}]}
    headers = {"authorization": f"Bearer {opened.key}"}
    return httpx.post(f"{opened.base_url}/v1/chat/completions", json=body, headers=headers, timeout=20)


def test_an_end_that_cannot_be_written_can_be_told_again(running: Bench) -> None:
    opened, admin = running.open("scored"), running.proxy.admin_url
    assert ask(opened, "hi").status_code == 200
    end = f"{admin}/executions/scored/end"
    with pytest.MonkeyPatch.context() as patch:
        refuse_writes(patch)
        refused = httpx.post(end, json={"score": 0.75})
        assert (refused.status_code, "cannot be written" in refused.json()["error"]) == (507, True)
    (listed,) = httpx.get(f"{admin}/executions").json()["executions"]
    assert (listed["id"], listed["steps"], listed["ending"]) == ("scored", 1, True)
    assert ask(opened, "more").status_code == 403
    assert httpx.post(end, json={"score": 0.75}).json()["score"] == 0.75
    assert httpx.post(end, json={"score": 0.75}).status_code == 409
    with CallLog(running.proxy.log_path) as log:
        assert [(record.execution, record.score) for record in log.executions()] == [("scored", 0.75)]
        assert log.verify() == ()


def test_calls_are_refused_until_a_write_works_again(
    running: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    opened = running.open("calling")
    with pytest.MonkeyPatch.context() as patch:
        refuse_writes(patch)
        answers = [ask(opened, str(number)) for number in range(3)]
        assert [answer.status_code for answer in answers] == [503] * 3
        assert all("the call log cannot be written" in answer.text for answer in answers)
    assert len(running.engines[0].generations) == 1  # the others were refused early
    assert not any(record.exc_info for record in caplog.records)
    assert sum("No space left" in record.getMessage() for record in caplog.records) == 1
    monkeypatch.setattr(recorder, "_TRY_AGAIN_S", 0.0)
    assert ask(opened, "again").status_code == 200
    assert ask(opened, "and again").status_code == 200
    assert len(running.records("calling")) == 2
