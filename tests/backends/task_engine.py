"""An engine double in a process of its own that does a harness's task, and says on its output how far each turn is.

`python task_engine.py PORT TOKENIZER TURNS.json`: each line of output is `began TURN` when a reply to that turn
begins, or `reached TURN` after its first tokens. Killed and started again, it goes on in the middle of a reply.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from gyre.backends.engines.engine import Chunk, Generation
from gyre.backends.engines.scripted import Pace, ScriptedEngine
from gyre.backends.engines.scripted_server import ScriptedServer

PACE: Final = Pace(tokens_per_s=60.0, chunk_tokens=3)
TOKENS_FIRST: Final = 9  # of a turn, before it is told
_RESPONSE: Final = "<tool_response>\n"
_ASKED: Final = "<|im_start|>assistant\n"


class TaskEngine(ScriptedEngine):
    """Says the turns of a task: a prompt with n tool responses gets turn n, from where the prompt ends."""

    def __init__(self, tokenizer: Any, turns: Sequence[Sequence[int]]) -> None:
        super().__init__("task", self._rest, pace=PACE)
        self._tokenizer = tokenizer
        self._turns = turns

    def _turn(self, generation: Generation) -> int:
        done = self._tokenizer.decode(generation.input_ids.tolist()).count(_RESPONSE)
        return min(done, len(self._turns) - 1)

    def _rest(self, generation: Generation) -> Sequence[int]:
        asked = self._tokenizer.encode(_ASKED, add_special_tokens=False)
        given = generation.input_ids.tolist()
        starts = [at + len(asked) for at in range(len(given)) if given[at : at + len(asked)] == asked]
        said = given[starts[-1] :]
        turn = self._turns[self._turn(generation)]
        assert list(turn[: len(said)]) == said, "it is not this task's reply that is to go on"
        return turn[len(said) :]

    async def generate(self, generation: Generation) -> AsyncGenerator[Chunk, None]:
        turn, sent = self._turn(generation), 0
        print("began", turn, flush=True)
        async with aclosing(super().generate(generation)) as chunks:
            async for chunk in chunks:
                yield chunk
                before, sent = sent, sent + len(chunk.token_ids)
                if before < TOKENS_FIRST <= sent:
                    print("reached", turn, flush=True)


class EngineProcess:
    """A task engine that runs; `hear` is called with each word and turn that it says, in a thread of its own."""

    def __init__(self, port: int, tokenizer: Path, turns: Path, hear: Callable[[str, int], None]) -> None:
        command = [sys.executable, __file__, str(port), str(tokenizer), str(turns)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self._hear = hear
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def kill(self) -> None:
        """Let it die, by kill -9."""
        self.process.kill()
        self.process.wait()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            word, turn = line.split()
            self._hear(word, int(turn))


@contextmanager
def task_engine(port: int, tokenizer: Path, turns: Path, hear: Callable[[str, int], None]) -> Iterator[EngineProcess]:
    """Run one."""
    engine = EngineProcess(port, tokenizer, turns, hear)
    try:
        yield engine
    finally:
        engine.kill()


def main(port: str, tokenizer: str, turns: str) -> None:
    """Serve until killed."""
    from transformers import AutoTokenizer

    engine = TaskEngine(AutoTokenizer.from_pretrained(tokenizer), json.loads(Path(turns).read_text()))

    async def application() -> web.Application:
        return ScriptedServer(engine).application()

    web.run_app(application(), host="127.0.0.1", port=int(port), print=None)


if __name__ == "__main__":
    main(*sys.argv[1:])
