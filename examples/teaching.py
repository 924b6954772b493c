"""What the examples' `prepare.py` share: tasks of going through doors, and how a tiny model is taught to.

The model learns from made-up conversations how to go on, and to go through the named door in part of the cases:
training by reward begins there. The same arguments give the same files.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor
from transformers import Qwen3ForCausalLM

from gyre.backends.models.quiet import quiet_bars
from gyre.backends.models.tiny import TinySettings, make_tiny_model, tiny_tokenizer

DOORS: Final = "acdegh"
LENGTH: Final = 4  # doors of a task
TASKS: Final = 256
COPYING, MIXED = 200, 60  # batches in which the named door is always taken, then sometimes
BATCH: Final = 12
COPYING_RATE, MIXED_RATE = 6e-3, 5e-4
WARM_UP: Final = 10  # batches
NAMED: Final = 0.4  # share of calls in the mixed batches that take the named door for sure; others draw from all

Message = dict[str, Any]


def command_line(description: str | None, out: Path) -> argparse.Namespace:
    """Return what the command line says: `out` and `seed`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=out, help="folder")
    parser.add_argument("--seed", type=int, default=0, help="other seeds give other models and other tasks")
    return parser.parse_args()


def tasks(seed: int) -> Iterator[dict[str, Any]]:
    """Give lines of a tasks file: the prompt names the first door, `doors` are all of them."""
    draws = random.Random(f"tasks {seed}")
    for number in range(TASKS):
        doors = draws.choices(DOORS, k=LENGTH)
        yield {"name": f"doors-{number}", "prompt": doors[0], "data": {"doors": doors}}


def said(tool: str, arguments: dict[str, str]) -> Message:
    """Return the model's turn that calls a tool."""
    call = {"type": "function", "function": {"name": tool, "arguments": json.dumps(arguments)}}
    return {"role": "assistant", "content": "", "tool_calls": [call]}


def make_model(folder: Path, seed: int, conversation: Callable[[str], list[Message]], tool: dict[str, Any]) -> None:
    """Teach a tiny random model, and write it with its tokenizer.

    `conversation` returns the messages of an execution in which all doors are the one given.
    """
    settings = TinySettings(seed=seed, context=1024)
    make_tiny_model(folder, settings)
    with quiet_bars():
        model = Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float32)
    teach(model, Conversations(seed, conversation, tool))
    with quiet_bars():
        model.save_pretrained(folder)


class Conversations:
    """Draws conversations. All have the same tokens but for the doors, so one is rendered and the doors put in."""

    def __init__(self, seed: int, conversation: Callable[[str], list[Message]], tool: dict[str, Any]) -> None:
        self._draws = torch.Generator().manual_seed(seed)
        tokenizer = tiny_tokenizer()
        rendered = torch.tensor(
            [
                tokenizer.apply_chat_template(conversation(door), tools=[tool], tokenize=True, return_dict=False)
                for door in DOORS
            ]
        )
        self._tokens = rendered[0]
        self._places = torch.nonzero(rendered[0] != rendered[1]).flatten()  # named, taken, named, taken ...
        self._doors = rendered[:, self._places[0]]
        assert len(self._places) == 2 * LENGTH, "a door is one token wherever it stands"
        assert (rendered[:, self._places] == self._doors[:, None]).all(), "it is the same one wherever it stands"
        self._replies = _replies(self._tokens.tolist(), tokenizer)

    def draw(self, share: float) -> tuple[Tensor, Tensor]:
        """Return tokens (BATCH, T), and which of them the model is to say, (T,); `share` of the doors are copied."""
        named = torch.randint(len(DOORS), (BATCH, LENGTH), generator=self._draws)
        other = torch.randint(len(DOORS), (BATCH, LENGTH), generator=self._draws)
        copied = torch.rand((BATCH, LENGTH), generator=self._draws) < share
        taken = torch.where(copied, named, other)
        tokens = self._tokens.expand(BATCH, -1).clone()
        tokens[:, self._places] = self._doors[torch.stack((named, taken), dim=2).flatten(1)]
        return tokens, self._replies


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
