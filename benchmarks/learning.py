"""Does a run learn, whatever the policy, and does no harness notice what goes on behind its proxy?

Makes runs of an example one after the other (those that are whole in OUT are not made again): elastic with three
seeds, colocate and async with the first of them, and elastic with two kills. Then prints a table, and writes the reward
curves to OUT/learning.html. A seed has its own model, tasks and draws; policies of one seed begin alike.
"""

from __future__ import annotations

import argparse
import json
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import polars as pl
from learning_runs import Plan, make_run
from rich.console import Console
from rich.table import Table

from gyre.atomic import write_text_atomic
from gyre.pages import Figure, axis, figure_html, offline_page
from gyre.report import RunResult, read_run
from gyre.report.theme import palette, policy_colour
from gyre.watch.figures import SCORE

DEFAULT: Final = (
    "elastic-seed0", "elastic-seed1", "elastic-seed2", "colocate-seed0", "async-seed0", "elastic-seed0-kills"
)  # fmt: skip
MODELS_DOING: Final = {"Submitted", "LimitsExceeded", "RepeatedFormatError"}  # mini-swe-agent's ends without an error
ENDS: Final = 5  # steps at either end of a run over which reward is averaged


def main() -> None:
    """Make what is missing, print the table, write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder of the runs")
    parser.add_argument("--example", choices=("doors", "shell"), default="doors", help="a folder of examples/")
    parser.add_argument("--runs", nargs="+", default=DEFAULT, metavar="NAME", help="POLICY-seedN or POLICY-seedN-kills")
    parser.add_argument("--set", dest="more", action="append", default=[], metavar="KEY=VALUE", help="of all runs")
    parser.add_argument("--read", action="store_true", help="make none, read those that are there")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    plans = [Plan.parse(name) for name in given.runs]
    more = [word for assignment in given.more for word in ("--set", assignment)]
    for plan in plans:
        if not given.read:
            make_run(given.out, given.example, plan, more)
    learned = [Learned.read(given.out / plan.name) for plan in plans if (given.out / plan.name).is_dir()]
    Console(width=160).print(table(learned))
    page = given.out / "learning.html"
    write_text_atomic(page, curves_page(learned))
    print(f"curves: {page}")


@dataclass(frozen=True, slots=True)
class Learned:
    """What a run came to."""

    name: str
    result: RunResult
    rewards: list[float]  # mean score of the executions that each step trained
    harnesses: list[bool]  # that wrote down how they ended: whether they saw an error
    harnesses_failed: int  # ended otherwise than by themselves with exit code 0

    @classmethod
    def read(cls, folder: Path) -> Learned:
        """Read a run's folder."""
        result = read_run(folder)
        means = [step.means[SCORE].mean for step in result.record.health.steps if SCORE in step.means]
        rewards = [mean for mean in means if mean is not None]
        works = (folder / "executions").glob("*/*/work")
        ended = result.record.executions.filter(pl.col("finished_s").is_not_null())
        failed = ended.filter(pl.col("outcome") != "completed").height
        harnesses = [error for error in map(saw_error, works) if error is not None]
        return cls(folder.name, result, rewards, harnesses, failed)

    @property
    def harness_errors(self) -> int:
        """Errors that harnesses saw, and harnesses that did not end well."""
        return sum(self.harnesses) + self.harnesses_failed

    @property
    def moves(self) -> pl.DataFrame:
        """The drains with which cells began to leave for training (`TRANSFERS_SCHEMA`)."""
        return self.result.record.transfers.filter(pl.col("step") == "drain")

    @property
    def moves_in_steps(self) -> int:
        """Moves of cells that began while a step was open."""
        steps = self.result.record.steps
        begun_s = self.moves["end_s"] - self.moves["seconds"]
        return sum(
            int(((begun_s > opened) & (begun_s < closed)).sum())
            for opened, closed in steps.select("opened_s", "closed_s").drop_nulls().iter_rows()
        )


def saw_error(work: Path) -> bool | None:
    """Return whether an execution's harness saw an error; None where it was ended before it could tell."""
    walk, trajectory = work / "walk.json", work / "mini.traj.json"
    if walk.exists():
        return json.loads(walk.read_text())["error"] is not None
    status = json.loads(trajectory.read_text())["info"]["exit_status"] if trajectory.exists() else ""
    return status not in MODELS_DOING if status else None


def table(runs: list[Learned]) -> Table:
    """Return a column for each run."""
    made = Table("", *(run.name for run in runs), title="reward: share of doors taken as named; ±: spread over steps")
    columns = [figures(run) for run in runs]
    for name in columns[0] if columns else ():
        made.add_row(name, *(column[name] for column in columns))
    return made


def figures(run: Learned) -> dict[str, str]:
    """Return a run's figures by their names."""
    record = run.result.record
    counts = {
        "moves to training": run.moves.height,
        "of them satellites": run.moves.filter(pl.col("cell") > 0).height,
        "of all in an open step": run.moves_in_steps,
        "publishes": len(record.publishes),
        "cells failed": record.cells.filter(pl.col("use") == "failed").height,
        "micro-steps they had claimed": record.micro_steps.filter(~pl.col("returned")).height,
        "harnesses": len(run.harnesses),
        "harness errors": run.harness_errors,
        "executions lost": record.executions.filter(pl.col("lost_reason").is_not_null()).height,
    }
    return {
        "steps": str(len(run.rewards)),
        f"reward, first {ENDS} steps": spread(run.rewards[:ENDS]),
        f"reward, last {ENDS} steps": spread(run.rewards[-ENDS:]),
        "minutes": f"{record.wall_s / 60:.1f}",
        **{name: f"{count:,}" for name, count in counts.items()},
    }


def spread(rewards: list[float]) -> str:
    """Return mean and standard deviation."""
    if not rewards:
        return "none"
    deviation = statistics.stdev(rewards) if len(rewards) > 1 else 0.0
    return f"{statistics.fmean(rewards):.2f} ± {deviation:.2f}"


def curves_page(runs: list[Learned]) -> str:
    """Return the page with the reward of every run, by step and by time."""
    policies = list(dict.fromkeys(run.result.policy for run in runs))
    figures = [curves(runs, policies, by_time) for by_time in (False, True)]
    names = "".join(f"<li>{run.name}</li>" for run in runs)
    return offline_page(
        title="A tiny model learns to go through doors",
        facts=names,
        body=f'<section class="figures">{"".join(map(figure_html, figures))}</section>',
        footer="Made by benchmarks/learning.py from the journals of the runs.",
        figures=figures,
        light=palette(False),
        dark=palette(True),
    )


def curves(runs: list[Learned], policies: list[str], by_time: bool) -> Figure:
    """Return the rewards as lines."""
    data = []
    for place, run in enumerate(runs):
        times = [step.time_s / 60 for step in run.result.record.health.steps]
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": run.name,
                "x": times if by_time else list(range(1, len(run.rewards) + 1)),
                "y": run.rewards,
                "line": {
                    "color": policy_colour(policies.index(run.result.policy)),
                    "dash": ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")[place % 6],
                },
            }
        )
    return Figure(
        key="reward_by_time" if by_time else "reward_by_step",
        title="Reward by time" if by_time else "Reward by step",
        reading="Mean score of the executions that a step trained. A colour is a policy.",
        data=data,
        layout={
            "xaxis": axis("minutes since cells were up") if by_time else axis("step", dtick=2),
            "yaxis": axis("reward", range=[0, 1]),
        },
        height_px=420,
    )


if __name__ == "__main__":
    main()
