"""The proxy is killed (-9) under harnesses that work, and started again on the same port and folder."""

from __future__ import annotations

from pathlib import Path

import pytest

for package in ("aiohttp", "prometheus_client", "starlette", "transformers", "uvicorn"):
    pytest.importorskip(package, reason="the proxy needs the extra gyre[proxy]")

from harness_site import site  # noqa: E402
from harnesses import CODEX, MINI, PI, Harness, first_of  # noqa: E402


@pytest.mark.parametrize("harness", first_of(PI, MINI, CODEX))
def test_a_harness_works_on(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, harness: Harness) -> None:
    """Killed twice: in the middle of a reply, which is made anew; and with a reply recorded of which the harness has
    not heard the end, which is not."""
    tokenizer = tmp_path_factory.getbasetemp() / "proxy-tokenizer"
    with site(harness, tmp_path / "site", tokenizer) as place:
        working = place.start_harness()
        place.until(lambda: 1 in place.reached, working)
        assert len(place.records()) == 1
        place.restart_proxy()
        place.until(lambda: 2 in place.reached, working)
        place.tap.hold()
        place.until(lambda: len(place.records()) == 3, working)
        whole = [record.call_id for record in place.records()]
        place.restart_proxy()
        finished = working.result()
        place.check_unharmed(finished)
        assert [record.call_id for record in place.records()] == whole
        assert place.began == [0, 1, 1, 2], "what was whole is not generated again"
