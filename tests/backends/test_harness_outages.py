"""All engines are gone under harnesses that work: before a reply's first token, and in its middle.

GYRE_OUTAGE_S says for how long, twice in each run; 60 and 600 have been tried. The default is longer than two signs of
life are apart.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

import pytest

for package in ("aiohttp", "prometheus_client", "starlette", "transformers", "uvicorn"):
    pytest.importorskip(package, reason="the proxy needs the extra gyre[proxy]")

from harness_site import Site, site  # noqa: E402
from harnesses import CODEX, MINI, PI, Harness, first_of  # noqa: E402

OUTAGE_S: Final = float(os.environ.get("GYRE_OUTAGE_S", "5"))
KEEP_ALIVE_S: Final = min(10.0, OUTAGE_S / 4)
SIGNS: Final = {  # of life, as each wire has them: an empty delta, a blank before a JSON body, an event
    "pi": b'"delta":{}',
    "mini-swe-agent": b"\n",
    "codex": b"event: response.in_progress",
}


@pytest.mark.parametrize("harness", first_of(PI, MINI, CODEX))
def test_a_harness_waits(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, harness: Harness) -> None:
    tokenizer = tmp_path_factory.getbasetemp() / "proxy-tokenizer"
    with site(harness, tmp_path / "site", tokenizer, "--keep-alive", str(KEEP_ALIVE_S)) as place:
        place.engine.kill()
        working = place.start_harness(patience_s=240 + 2 * OUTAGE_S)
        place.until(lambda: any(one.requests() for one in place.tap.connections), working)
        outages = [outage(place)]
        place.start_engine()
        place.until(lambda: 1 in place.reached, working)
        place.engine.kill()
        outages.append(outage(place))
        place.start_engine()
        place.check_unharmed(working.result())
    assert place.began == [0, 1, 1, 2], "what had come of a reply is not generated again"
    for start_s, end_s in outages:
        check_alive(place, start_s, end_s)


def outage(place: Site) -> tuple[float, float]:
    """Let it last; return when it began and when it ended."""
    start_s = time.monotonic()
    time.sleep(OUTAGE_S)
    return start_s, time.monotonic()


def check_alive(place: Site, start_s: float, end_s: float) -> None:
    """One request waited all the while: its headers came, then a sign of life every so often, in its own protocol."""
    [waited] = [one for one in place.tap.connections if any(start_s < at_s < end_s for at_s, _ in one.replied)]
    during = b"".join(data for at_s, data in waited.replied if start_s < at_s < end_s)
    assert waited.replies().count(b"HTTP/1.1 200 OK") >= 1
    assert b"HTTP/1.1 4" not in waited.replies()
    assert b"HTTP/1.1 5" not in waited.replies()
    signs = during.count(SIGNS[place.harness.name])
    assert signs >= int(OUTAGE_S / KEEP_ALIVE_S) - 2, during[-2000:]
