"""Recorded calls of a long agent execution, made up: seeded, of the shape that was measured on real ones.

An execution has a main conversation that grows until it is compacted, sub-agents that run beside it, a title call of
another model, and the accidents that make trees of histories: calls asked again (the same output, or another), outputs
cut off and resumed by newer weights, and turns that come back re-tokenised. The harness names threads but gives no
roles, as a proxy sees it. `python benchmarks/trajectory_workload.py` prints what the presets hold:

| | calls | input | unique | sampled | nodes | leaves |
|---|---|---|---|---|---|---|
| measured on a real one | 596 | 32.2 M | 0.867 M | 0.298 M | 1,198 | 26 |
| `1x` | 596 | 32.2 M | 0.871 M | 0.299 M | 1,193 | 27 |
| `3x` | 1,788 | 96.2 M | 2.533 M | 0.909 M | 3,559 | 82 |
| `10x` | 5,960 | 320.1 M | 8.441 M | 3.058 M | 11,905 | 269 |
| `long` | 705 | 102.0 M | 1.006 M | 0.353 M | 1,404 | 12 |

Token ids compress like those of real text (`trajectory_text`). Log-probabilities come from independent lognormal odds
of another token: mean -0.22, median -0.018, 17 % above -0.001 and 42 % above -0.01, 0.004 % exactly 0. Those of a model
after reinforcement learning are expected nearer to 0, many of them exactly, and would compress better.

Unique and sampled tokens are counted as the calls are made: wherever two histories part, the first token that differs
is one that stands nowhere else, so that no chance match hides behind the count.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from trajectory_conversation import HARNESS, Conversation, Counts, Recorder, Shape

from gyre.role import Role
from gyre.trajectory.building import build_tree
from gyre.trajectory.call import CallRecord, Finish
from gyre.trajectory.execution import ExecutionRecord

MEASURED: Final = Shape()
LONG: Final = Shape(calls=705, window_tokens=320_000, preamble_tokens=30_000, sub_agent_every=200)
SEED: Final = 6  # of the first dozen the one nearest to what was measured; their means are as near
PRESETS: Final = {
    "1x": MEASURED,
    "3x": replace(MEASURED, calls=1_788),
    "10x": replace(MEASURED, calls=5_960),
    "long": LONG,
}


@dataclass(frozen=True)
class Workload:
    """The calls of an execution in commit order, with what they hold, and what each call truly does."""

    execution: str
    records: tuple[CallRecord, ...]
    roles: tuple[Role, ...]
    counts: Counts


def generate(
    shape: Shape = MEASURED, seed: int = SEED, execution: str = "execution", own_buffers: bool = False
) -> Workload:
    """Return an execution's calls.

    Inputs are views of one buffer per conversation window, so they take a few bytes a unique token. With `own_buffers`
    each is an array of its own, as a log reader or a proxy that keeps every request would have it.
    """
    recorder = Recorder(np.random.default_rng([seed, shape.calls]), shape, execution)
    _Agent(recorder).run()
    records = recorder.records
    if own_buffers:
        records = [replace(record, input_ids=record.input_ids.copy()) for record in records]
    return Workload(execution, tuple(records), tuple(recorder.roles), recorder.counts)


def step(
    executions: int = 64, groups: int = 8, shape: Shape = MEASURED, seed: int = SEED
) -> Iterator[tuple[ExecutionRecord, Workload]]:
    """Yield the executions of a training step group by group, made one at a time; lengths vary by about a third."""
    rng = np.random.default_rng([seed, executions, groups])
    for number in range(executions):
        group = number * groups // executions
        name = f"group-{group}-{number}"
        calls = max(2, int(shape.calls * rng.lognormal(-0.05, 0.32)))
        score = None if rng.random() < 0.03 else float(rng.random() < 0.4)
        ended = ExecutionRecord(name, f"group-{group}", score, HARNESS)
        yield ended, generate(replace(shape, calls=calls), seed + 1 + number, name)


class _Agent:
    """A whole execution: main, its sub-agents, the title."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder, shape = recorder, recorder.shape
        self.main = Conversation(recorder, "main", Role.MAIN, recorder.tokens(shape.preamble_tokens), 0)
        self.sub_preambles = [recorder.tokens(shape.sub_preamble_tokens) for _ in range(2)]
        self.sub_known = [0, 0]
        self.sub_agents = 0
        self.beside: list[tuple[Conversation, int]] = []  # running sub-agents, and the calls that each has left

    def run(self) -> None:
        """Make all calls."""
        recorder, shape = self.recorder, self.recorder.shape
        title, answer = recorder.tokens(600), recorder.tokens(12)
        recorder.commit(title, answer, Role.SIDE, len(title) + len(answer), thread="main", finish=Finish.STOP)
        self.main.add(recorder.tokens(recorder.length(4 * shape.result_tokens)))
        turns = 0
        while not recorder.full:
            if self.main.used >= shape.window_tokens:
                self.main.compact()
                continue
            self.main.turn()
            turns += 1
            self._run_beside()
            if turns % shape.sub_agent_every == shape.sub_agent_every // 2 and not recorder.full:
                self._spawn()

    def _run_beside(self) -> None:
        """Let each running sub-agent make three turns for one of main's."""
        left = []
        for sub_agent, turns in self.beside:
            for _ in range(min(3, turns)):
                if not self.recorder.full:
                    sub_agent.turn()
            if turns > 3:
                left.append((sub_agent, turns - 3))
        self.beside = left

    def _spawn(self) -> None:
        """Start a sub-agent with one of two preambles."""
        recorder, kind = self.recorder, int(self.recorder.happens(0.5))
        preamble, self.sub_agents = self.sub_preambles[kind], self.sub_agents + 1
        sub_agent = Conversation(recorder, f"agent-{self.sub_agents}", Role.SUB_AGENT, preamble, self.sub_known[kind])
        sub_agent.add(recorder.tokens(recorder.length(recorder.shape.result_tokens)))
        sub_agent.turn()
        self.sub_known[kind] = len(preamble)
        self.beside.append((sub_agent, recorder.shape.sub_agent_calls - 1))


def main() -> None:
    """Print what the presets hold."""
    for name, shape in PRESETS.items():
        workload = generate(shape)
        counts, tree = workload.counts, build_tree(workload.records)
        roles = ", ".join(f"{workload.roles.count(role)} {role}" for role in Role if role in workload.roles)
        input_m, unique_m, sampled_m = (
            tokens / 1e6 for tokens in (counts.input_tokens, counts.unique_tokens, counts.sampled_tokens)
        )
        sys.stdout.write(
            f"{name}: {counts.calls} calls, {input_m:.1f} M input, {unique_m:.3f} M unique, {sampled_m:.3f} M sampled, "
            f"{len(tree.node_parent)} nodes, {len(tree.leaf_node)} leaves; {roles}\n"
        )


if __name__ == "__main__":
    main()
