"""Harnesses in front of a proxy whose engines fail under them, and what must be true of the calls recorded then."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
from harnesses import CONTENT, Endpoint, Finished, Harness, run
from proxy_bench import Bench, bench

from gyre.backends.engines.engine import Chunk, Generation
from gyre.backends.engines.scripted import Pace, ScriptedEngine
from gyre.backends.proxy.tokens import Renderer
from gyre.trajectory import Baseline, CallRecord, ExecutionRecord, Selection, build_tree, make_samples
from gyre.trajectory.check import refusal
from gyre.trajectory.selection import Mode

PACE: Final = Pace(tokens_per_s=400.0, chunk_tokens=3)
TOKENS_FIRST: Final = 9  # of a turn, before something befalls its engine
PIECE: Final = 3  # characters that are tokenised at a time, so that tokens end where the tokenizer would not end them


def odd_ids(renderer: Renderer, text: str) -> list[int]:
    """Tokens that decode to `text`, in another division than the tokenizer's own, and the one that ends a turn."""
    pieces = [text[at : at + PIECE] for at in range(0, len(text), PIECE)]
    ids = [token for piece in pieces for token in renderer.tokenizer.encode(piece, add_special_tokens=False)]
    assert ids != renderer.tokenizer.encode(text, add_special_tokens=False)
    return [*ids, renderer.tokenizer.eos_token_id]


def turn_of(renderer: Renderer, generation: Generation, turns: int) -> int:
    """Which turn of the task a prompt asks for: there is one tool response for each before."""
    prompt = generation.input_ids[: len(generation.input_ids) - generation.continued_tokens]
    done = renderer.tokenizer.decode(prompt.tolist()).count("<tool_response>\n")
    return min(done, turns - 1)


@dataclass
class Trouble:
    """What befalls the engine of each turn, once, after its first tokens."""

    befall: Sequence[Callable[[ScriptedEngine], None]]
    done: set[int] = field(default_factory=set)

    def strike(self, turn: int, engine: ScriptedEngine) -> None:
        """Let it happen, if it has not."""
        if turn < len(self.befall) and turn not in self.done:
            self.done.add(turn)
            self.befall[turn](engine)


class TroubledEngine(ScriptedEngine):
    """A scripted engine that something befalls in the middle of a reply."""

    def __init__(self, name: str, renderer: Renderer, turns: Sequence[Sequence[int]], trouble: Trouble) -> None:
        self._turn: Callable[[Generation], int] = lambda generation: turn_of(renderer, generation, len(turns))
        self._trouble = trouble
        super().__init__(name, lambda generation: turns[self._turn(generation)], pace=PACE)

    async def generate(self, generation: Generation) -> AsyncGenerator[Chunk, None]:
        sent = 0
        async with aclosing(super().generate(generation)) as chunks:
            async for chunk in chunks:
                yield chunk
                sent += len(chunk.token_ids)
                if sent >= TOKENS_FIRST:
                    self._trouble.strike(self._turn(generation), self)


@dataclass(frozen=True, slots=True)
class Run:
    """A harness's run and what was recorded of it."""

    finished: Finished
    records: list[CallRecord]
    moves: int  # replies that went on elsewhere
    workdir: Path


def scripted_run(harness: Harness, renderer: Renderer, folder: Path, *, troubled: bool) -> Run:
    """Let a harness do the task; troubled: engines are killed, paused with abort and drained, in mid-reply."""
    harness.path()
    turns = [odd_ids(renderer, text) for text in harness.turns()]
    made: list[Bench] = []

    def drain(engine: ScriptedEngine) -> None:
        made[0].submit(made[0].proxy.pool.drain(engine.name, deadline_s=0.0))

    def kill(engine: ScriptedEngine) -> None:
        engine.kill()
        asyncio.get_running_loop().call_later(0.3, engine.restart)

    def pause(engine: ScriptedEngine) -> None:
        engine.pause(abort=True)
        asyncio.get_running_loop().call_later(0.5, engine.resume)

    trouble = Trouble([kill, pause, drain] if troubled else [])
    engines = lambda: [TroubledEngine(name, renderer, turns, trouble) for name in ("one", "two", "three")]  # noqa: E731
    with bench(renderer, folder / "log", engines) as running:
        made.append(running)
        finished = run_harness(harness, running, folder)
        generations = sum(len(engine.generations) for engine in running.engines)
        records = running.records("task")
    assert len(trouble.done) == len(trouble.befall)
    outputs = [record.output_ids.tolist() for record in records]
    assert outputs == turns, "what was sampled is recorded, token for token"
    return Run(finished, records, generations - len(records), folder / "work")


def run_harness(harness: Harness, running: Bench, folder: Path) -> Finished:
    """Run the task as execution "task"."""
    opened: Any = running.open("task", harness=harness.name)
    return run(harness, folder / "home", folder / "work", Endpoint(opened.base_url, opened.key))


def check_unharmed(done: Run) -> None:
    """The task is done, and its calls are one conversation of exact tokens, each of which is trained once."""
    assert done.finished.returncode == 0, done.finished.output[-3000:]
    assert (done.workdir / "hello.txt").read_text() == CONTENT
    check_one_conversation(done.records)


def check_one_conversation(records: list[CallRecord]) -> None:
    """Each call goes on from the one before, token for token; one leaf; every sampled token is trained once."""
    for record in records:
        assert refusal(record) is None
        assert record.delivered
    for before, after in pairwise(records):
        context = np.concatenate((before.input_ids, before.output_ids))
        np.testing.assert_array_equal(after.input_ids[: len(context)], context)
    tree = build_tree(records)
    assert len(tree.leaf_node) == 1
    assert tree.duplicate_tokens == 0
    sampled = sum(len(record.output_ids) for record in records)
    execution = ExecutionRecord(execution="task", group="task", score=1.0)
    samples = make_samples([(execution, tree)], Selection(mode=Mode.ALL), Baseline.NONE)
    assert int(samples.loss_mask.sum()) == sampled == tree.sampled_tokens
