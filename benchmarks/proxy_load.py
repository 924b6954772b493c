"""gyre's proxy under load: latency and CPU time, against an engine double in a process of its own.

Every chunk spells the time at which the double sent it, so that its latency is measured where it arrives, in the
load's own process, whatever lies between. "direct" is the load on the double itself: what the measurement adds.
"waited" is how long the process could have run but others had the cores, in parts of the run's time. LiteLLM's proxy
and sglang-router stand under the same load where their programs are named; neither tokenises or records.

    python benchmarks/proxy_load.py [--litellm PROGRAM] [--router PROGRAM] [--only NAME ...] [--json FILE]
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
import numpy as np
from proxy_load_history import CALLS, measure
from proxy_load_servers import HERE, Place, direct, engine, gyre, litellm, router
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(HERE.parent / "tests" / "backends"))  # the tiny model's tokenizer

SERVERS: Final = {"direct": direct, "gyre": gyre, "litellm": litellm, "router": router}


@dataclass(frozen=True, slots=True)
class Load:
    """Streams at once, each of `chunks` chunks at a set pace."""

    name: str
    streams: int
    chunks_per_s: float
    chunks: int
    ramp_s: float


WIDE: Final = Load("500 streams, 4 chunks/s each", 500, 4.0, 80, 5.0)
QUICK: Final = Load("100 streams, 20 chunks/s each", 100, 20.0, 400, 3.0)
LONG: Final = Load("1 stream, 20,000 chunks", 1, 1000.0, 20_000, 0.0)


def run(load: Load, name: str, place: Place) -> dict[str, Any]:
    """Put one load on one server."""
    with engine(place, load.chunks_per_s) as double, SERVERS[name](place, double.url) as target:
        command = [
            *(sys.executable, HERE / "proxy_load_client.py", f"--url={target.url}", f"--streams={load.streams}"),
            *(f"--chunks={load.chunks}", f"--ramp-s={load.ramp_s}", f"--pid={target.pid}"),
        ]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, timeout=600)
    figures = json.loads(done.stdout)
    figures |= {"load": load.name, "server": name, "streams": load.streams, "expected": load.streams * load.chunks}
    figures["cpu_ms_per_1k"] = 1e6 * figures["cpu_s"] / max(1, figures["chunks"])
    return dict(figures)


def load_table(rows: list[dict[str, Any]]) -> Table:
    """Show loads side by side."""
    table = Table(title="Chunks from the double to the client")
    for column in ("load", "server"):
        table.add_column(column)
    for column in ("streams whole", "chunks", "p50 ms", "p99 ms", "most ms", "CPU-ms / 1,000", "waited"):
        table.add_column(column, justify="right")
    for row in rows:
        own = "-" if row["server"] == "direct" else f"{row['cpu_ms_per_1k']:.0f}"
        times = [f"{row[name]:.2f}" if name in row else "-" for name in ("p50_ms", "p99_ms", "max_ms")]
        chunks = f"{row['chunks']:,} of {row['expected']:,}"
        waited = f"{row['waited_s'] / row['wall_s']:.0%}"
        table.add_row(row["load"], row["server"], f"{row['whole']} of {row['streams']}", chunks, *times, own, waited)
    return table


def tenths(row: dict[str, Any]) -> str:
    """Say what the last tenth of a long reply costs against its first."""
    each = np.diff(row["tenths_cpu_s"]) * 1000
    told = ", ".join(f"{one:.0f}" for one in each)
    return f"{row['server']}: CPU-ms by tenth of {row['chunks']:,} chunks {told}; last / first {each[-1] / each[0]:.2f}"


def history() -> dict[str, float]:
    """Measure the cost of a call in a long conversation."""
    from proxy_bench import renderer_of

    with tempfile.TemporaryDirectory() as folder:
        figures = measure(renderer_of(Path(folder) / "tokenizer"))
    last = slice(CALLS - 50, None)
    parts = {name: float(np.median(getattr(figures, f"{name}_ms")[last])) for name in ("read", "prompt", "record")}
    first = float(np.median(figures.prompt_ms[10:60]))
    return {**parts, "prompt_first": first, "tokens": figures.tokens, "body_bytes": figures.body_bytes}


@click.command()
@click.option("--litellm", type=click.Path(path_type=Path, exists=True), help="LiteLLM's program, to stand beside.")
@click.option("--router", type=click.Path(path_type=Path, exists=True), help="sglang-router's (smg), likewise.")
@click.option("--only", multiple=True, type=click.Choice(["wide", "quick", "long", "history"]))
@click.option("--server", "servers", multiple=True, type=click.Choice(list(SERVERS)))
@click.option("--json", "out", type=click.Path(path_type=Path))
def main(
    litellm: Path | None, router: Path | None, only: tuple[str, ...], servers: tuple[str, ...], out: Path | None
) -> None:
    """Measure and show."""
    from proxy_bench import renderer_of

    wanted = set(only) or {"wide", "quick", "long", "history"}
    console, rows = Console(width=140), list[dict[str, Any]]()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        place = Place(Path(scratch) / "tokenizer", Path(scratch), litellm, router)
        renderer_of(place.tokenizer)
        names = servers or tuple(name for name in SERVERS if name in ("direct", "gyre") or getattr(place, name))
        for load in [one for key, one in (("wide", WIDE), ("quick", QUICK)) if key in wanted]:
            for name in names:
                console.print(f"{load.name}: {name}")
                rows.append(run(load, name, place))
        if rows:
            console.print(load_table(rows))
        if "long" in wanted:
            rows.append(run(LONG, "gyre", place))
            console.print(tenths(rows[-1]))
    if "history" in wanted:
        found["history"] = history()
        console.print(
            "call {0} of a conversation, {tokens:,.0f} tokens: prompt {prompt:.2f} CPU-ms ({prompt_first:.2f} at the "
            "start), reading the body of {body_bytes:,.0f} bytes {read:.2f}, keeping the call {record:.2f}".format(
                CALLS, **found["history"]
            )
        )
    if out is not None:
        out.write_text(json.dumps({"loads": rows, **found}, indent=1))


if __name__ == "__main__":
    main()
