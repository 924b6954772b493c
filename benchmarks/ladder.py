"""QwenGyre's ablation ladder: eight settings of the scheduler, simulated hours over those of E0 and the published ones.

Twelve steps of `nl2repo-122b`, all at the same GPUs and set to the same mean scheduling staleness, by `gyre compare`.
Nothing is tuned here: it reports how far the simulator is from what was published (arXiv 2609.33848).

    python benchmarks/ladder.py [--steps 12] [--seeds 1] [--staleness 1.0] [--json FILE]
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from gyre.cli import main as gyre

PROFILE = "nl2repo-122b"
STANDALONE = "cluster.cells=7,cluster.standalone_engines=4"  # one cell of 4 nodes gives way to 4 engines of a node


@dataclass(frozen=True)
class Rung:
    """One setting of the ladder; `published` is its time over that of E0."""

    label: str
    what: str
    policy: str  # as `gyre compare --policy` takes it
    published: float


RUNGS = (
    Rung("E0", "gyre", "elastic", 1.00),
    Rung("E2", "gyre, 4 cells of 8 nodes", "elastic,cluster.cells=4,cluster.gpus_per_cell=64", 1.02),
    Rung("E1", "gyre, mu = 1", "elastic,mu=1", 1.11),
    Rung("C2", "Colocate + standalone + streaming", f"colocate,streaming=true,{STANDALONE}", 1.19),
    Rung("A3", "Async + streaming", "async,streaming=true", 1.38),
    Rung("C1", "Colocate + standalone", f"colocate,{STANDALONE}", 1.40),
    Rung("C0", "Colocate", "colocate", 1.44),
    Rung("A0", "Async", "async", 1.56),
)


def compare(steps: int, seeds: int, staleness: float) -> dict[str, Any]:
    """Return what `gyre compare --json` prints for all rungs."""
    arguments = ["compare", PROFILE, "--json"]
    arguments += ["--steps", str(steps), "--seeds", str(seeds), "--staleness", str(staleness)]
    for rung in RUNGS:
        arguments += ["--policy", f"{rung.label}={rung.policy}"]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        gyre.main(arguments, standalone_mode=False)
    comparison: dict[str, Any] = json.loads(printed.getvalue())
    return comparison


def ladder(comparison: dict[str, Any]) -> list[dict[str, Any]]:
    """One row a rung: simulated hours, their ratio to E0's, and what was published."""
    by_label = {figures["policy"]: figures for figures in comparison["policies"]}
    reference_h = by_label[RUNGS[0].label]["hours"]
    rows = []
    for rung in RUNGS:
        figures = by_label[rung.label]
        bound = figures["bound"]
        rows.append(
            {
                "label": rung.label,
                "what": rung.what,
                "policy": rung.policy,
                "hours": figures["hours"],
                "ratio": figures["hours"] / reference_h,
                "published": rung.published,
                "mean_staleness": figures["staleness"]["mean"],
                "idle_share": figures["idle_share"],
                "training_share": figures["gpu_share"]["training"],
                "fraction_of_bound": None if bound is None else bound["fraction"],
            }
        )
    return rows


def spread_of(rows: list[dict[str, Any]]) -> float:
    """Root mean square over the rungs below E0 of log(simulated ratio / published ratio)."""
    errors = [math.log(row["ratio"] / row["published"]) for row in rows[1:]]
    return math.sqrt(sum(error * error for error in errors) / len(errors))


def table(rows: list[dict[str, Any]]) -> Table:
    """The rows for a terminal."""
    shown = Table(
        "", "", "hours", "to E0", "published", "staleness", "idle", "of bound", title=f"{PROFILE}: the ladder"
    )
    for column in shown.columns[2:]:
        column.justify = "right"
    for row in rows:
        fraction = row["fraction_of_bound"]
        shown.add_row(
            row["label"],
            row["what"],
            f"{row['hours']:.2f}",
            f"{row['ratio']:.2f}",
            f"{row['published']:.2f}",
            f"{row['mean_staleness']:.2f}",
            f"{row['idle_share']:.0%}",
            "" if fraction is None else f"{fraction:.0%}",
        )
    return shown


def main() -> None:
    """Simulate all rungs and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=12, help="updates of each run")
    parser.add_argument("--seeds", type=int, default=1, help="seeds to average over")
    parser.add_argument("--staleness", type=float, default=1.0, help="mean scheduling staleness of every rung")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures here")
    arguments = parser.parse_args()
    comparison = compare(arguments.steps, arguments.seeds, arguments.staleness)
    rows = ladder(comparison)
    Console().print(table(rows))
    for note in comparison["notes"]:
        print(note)
    print(
        f"Simulated and published ratios differ by {math.expm1(spread_of(rows)):.0%} (root mean square of logarithms)."
    )
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
