"""Makes a folder with all that the example needs: settings, harness, judge, tasks, and a tiny model.

The model learns from made-up conversations to call the tool, and to go through the named door in part of the cases:
training by reward begins there. The same arguments give the same files.

    python examples/doors/prepare.py [--out out/doors] [--seed 0]
"""

from __future__ import annotations

import argparse
import json
import math
import random
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import torch
from harness import DOORS, TOOL
from torch import Tensor
from transformers import Qwen3ForCausalLM

from gyre.atomic import write_text_atomic
from gyre.backends.models.quiet import quiet_bars
from gyre.backends.models.tiny import TinySettings, make_tiny_model, tiny_tokenizer

LENGTH: Final = 4  # doors of a task
TASKS: Final = 256
COPYING, MIXED = 200, 60  # batches in which the named door is always taken, then sometimes
BATCH: Final = 12
COPYING_RATE, MIXED_RATE = 6e-3, 5e-4
WARM_UP: Final = 10  # batches
NAMED: Final = 0.4  # share of calls in the mixed batches that take the named door for sure; others draw from all

Message = dict[str, Any]


def main() -> int:
    """Make both; return the exit code."""
    arguments = _arguments()
    out: Path = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    for name in ("settings.toml", "harness.py", "judge.py"):
        shutil.copy(Path(__file__).with_name(name), out)
    write_text_atomic(out / "tasks.jsonl", "".join(tasks(arguments.seed)))
    make_model(out / "model", arguments.seed)
    print(f"next: gyre run {out / 'settings.toml'} --out {out / 'run'}")
    return 0


def tasks(seed: int) -> Iterator[str]:
    """Give lines of the tasks file: the prompt names the first door, `doors` are all of them."""
    draws = random.Random(f"tasks {seed}")
    for number in range(TASKS):
        doors = draws.choices(DOORS, k=LENGTH)
        yield json.dumps({"name": f"doors-{number}", "prompt": doors[0], "data": {"doors": doors}}) + "\n"


def make_model(folder: Path, seed: int) -> None:
    """Teach a tiny random model, and write it with its tokenizer."""
    settings = TinySettings(seed=seed, context=1024)
    make_tiny_model(folder, settings)
    with quiet_bars():
        model = Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float32)
    teach(model, Conversations(seed))
    with quiet_bars():
        model.save_pretrained(folder)


class Conversations:
    """Draws conversations. All have the same tokens but for the doors, so one is rendered and the doors put in."""

    def __init__(self, seed: int) -> None:
        self._draws = torch.Generator().manual_seed(seed)
        tokenizer = tiny_tokenizer()
        first, second = (
            torch.tensor(
                tokenizer.apply_chat_template(conversation(door), tools=[TOOL], tokenize=True, return_dict=False)
            )
            for door in DOORS[:2]
        )
        self._tokens = first
        self._places = torch.nonzero(first != second).flatten()  # named, taken, named, taken ...
        assert len(self._places) == 2 * LENGTH, "a door is one token wherever it stands"
        self._doors = torch.tensor(tokenizer.convert_tokens_to_ids(list(DOORS)))
        self._replies = _replies(first.tolist(), tokenizer)

    def draw(self, share: float) -> tuple[Tensor, Tensor]:
        """Return tokens (BATCH, T), and which of them the model is to say, (T,); `share` of the doors are copied."""
        named = torch.randint(len(DOORS), (BATCH, LENGTH), generator=self._draws)
        other = torch.randint(len(DOORS), (BATCH, LENGTH), generator=self._draws)
        copied = torch.rand((BATCH, LENGTH), generator=self._draws) < share
        taken = torch.where(copied, named, other)
        tokens = self._tokens.expand(BATCH, -1).clone()
        tokens[:, self._places] = self._doors[torch.stack((named, taken), dim=2).flatten(1)]
        return tokens, self._replies


def conversation(door: str) -> list[Message]:
    """Return an execution's messages in which every door is the same."""
    call = {"type": "function", "function": {"name": "go", "arguments": json.dumps({"to": door})}}
    turn = {"role": "assistant", "content": "", "tool_calls": [call]}
    between = [{"role": "tool", "content": door}, turn]
    return [{"role": "user", "content": door}, turn, *between * (LENGTH - 1)]


def teach(model: Qwen3ForCausalLM, conversations: Conversations) -> None:
    """Train on conversations: the model's own replies count, the prompts do not."""
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), weight_decay=0.01)
    begun_s = time.monotonic()
    for batch in range(COPYING + MIXED):
        optimizer.param_groups[0]["lr"] = _rate(batch)
        tokens, replies = conversations.draw(1.0 if batch < COPYING else NAMED)
        states = model.model(tokens).last_hidden_state[:, :-1][:, replies[1:]]
        loss = torch.nn.functional.cross_entropy(
            model.lm_head(states).flatten(0, 1), tokens[:, 1:][:, replies[1:]].flatten()
        )
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if batch % 20 == 19:
            took_s = time.monotonic() - begun_s
            print(f"batch {batch + 1} of {COPYING + MIXED}, loss {loss.item():.4f}, {took_s:.0f} s", file=sys.stderr)


def _rate(batch: int) -> float:
    """Rise, then fall as a cosine, in each of the two parts."""
    at, length, most = (batch, COPYING, COPYING_RATE) if batch < COPYING else (batch - COPYING, MIXED, MIXED_RATE)
    return most * min(1.0, (at + 1) / WARM_UP) * (0.05 + 0.95 * (1 + math.cos(math.pi * at / length)) / 2)


def _replies(tokens: list[int], tokenizer: Any) -> Tensor:
    """Mark what the model says: from after its turn's head to the mark that ends the turn."""
    head = tokenizer("<|im_start|>assistant\n", add_special_tokens=False).input_ids
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    said, inside = [], False
    for at, token in enumerate(tokens):
        inside = inside or tokens[max(0, at - len(head)) : at] == head
        said.append(inside)
        inside = inside and token != end
    return torch.tensor(said)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[2] / "out" / "doors", help="folder")
    parser.add_argument("--seed", type=int, default=0, help="other seeds give other models and other tasks")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
