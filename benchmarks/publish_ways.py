"""Seconds that one engine takes for new weights, from disk and from tensors: `publish_ways.py MODEL [--gpu]`.

Starts one SGLang server of the model and gives it the same weights again and again, the two ways in turn. `tensors`
includes reading the folder, as `TrainedWeights` does once a publish, however many engines there are; it is said apart.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from safetensors.torch import load_file

from gyre.backends.engines.launching import ServerSettings, start_sglang
from gyre.backends.publishing.control import EngineControl
from gyre.backends.publishing.from_tensors import FromTensors
from gyre.backends.publishing.giving import GiveSettings, give
from gyre.backends.publishing.weights import Weights, on_disk

ROUNDS = 8


async def measured(url: str, model: Path) -> dict[str, list[float]]:
    """Seconds of every publish, by way."""
    seconds, control = defaultdict[str, list[float]](list), EngineControl(url)
    for version in range(1, 2 * ROUNDS + 1, 2):
        begin_s = time.perf_counter()
        await give(control, on_disk(version, model), GiveSettings())
        seconds["disk"].append(time.perf_counter() - begin_s)
        begin_s = time.perf_counter()
        tensors = {}
        for path in sorted(model.glob("*.safetensors")):
            tensors |= load_file(path)
        seconds["reading for tensors"].append(time.perf_counter() - begin_s)
        await give(control, Weights(version + 1, model, FromTensors(tensors)), GiveSettings())
        seconds["tensors"].append(time.perf_counter() - begin_s)
    await control.close()
    return seconds


def main() -> None:
    """Print medians and ranges."""
    model, on_cpu = Path(sys.argv[1]), "--gpu" not in sys.argv
    with tempfile.TemporaryDirectory() as folder:
        flags = ("--mem-fraction-static=0.5", "--max-total-tokens=32768") if on_cpu else ()
        server = start_sglang(ServerSettings(model, Path(folder) / "server.log", cpu=on_cpu, flags=flags))
        try:
            server.wait_ready()
            seconds = asyncio.run(measured(server.url, model))
        finally:
            server.end()
    for way, found in seconds.items():
        print(f"{way:20} median {statistics.median(found):.3f} s, {min(found):.3f} to {max(found):.3f}")
    ratio = statistics.median(seconds["tensors"]) / statistics.median(seconds["disk"])
    print(f"tensors / disk {ratio:.2f}")


if __name__ == "__main__":
    main()
