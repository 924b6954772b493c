"""What the checks of `gpu_cell.py` run on: random models whose shapes GPU kernels take, and micro-steps that fork."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from gyre.trajectory.advantages import Baseline
from gyre.trajectory.building import TreeBuilder
from gyre.trajectory.call import CallRecord, Finish
from gyre.trajectory.execution import ExecutionRecord
from gyre.trajectory.making import make_samples
from gyre.trajectory.samples import Samples
from gyre.trajectory.selection import Mode, Selection

if TYPE_CHECKING:
    from gyre.backends.models.architecture import Architecture
    from gyre.backends.models.tiny import TinySettings
    from gyre.trajectory.store.part import Item

ALL_PATHS: Final = Selection(mode=Mode.ALL)
_ENGINE_CONTEXT: Final = 32_768  # tokens


@dataclass(frozen=True, slots=True)
class Site:
    """Where checks run."""

    folder: Path  # of their own, for models and logs; what one check makes there others find
    model: Path | None  # that was asked for; None: those made here
    device: str  # "cpu" or "cuda"

    @property
    def on_gpu(self) -> bool:
        """Whether there is a GPU."""
        return self.device == "cuda"

    @property
    def place(self) -> str:
        """The device with its number."""
        return "cuda:0" if self.on_gpu else "cpu"

    def dense(self) -> Path:
        """A small dense Qwen3: the model that was asked for, or one with heads of 64 channels."""
        from gyre.backends.models.tiny import TinySettings

        small = TinySettings(layers=2, hidden=256, ffn=512, heads=4, kv_heads=2, head_dim=64)
        return self.model or self._tiny("dense", small)

    def resident(self) -> Path:
        """What an engine and a trainer hold together: 0.44 billion weights on a GPU, so that their memory shows."""
        from gyre.backends.models.tiny import TinySettings

        if not self.on_gpu or self.model is not None:
            return self.dense()
        large = TinySettings(
            layers=28, hidden=1024, ffn=3072, heads=16, kv_heads=8, head_dim=128, context=_ENGINE_CONTEXT, tied=True
        )
        return self._tiny("resident", large)

    def experts(self) -> Path:
        """A small Qwen3 with experts."""
        import torch
        from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

        folder = self.folder / "experts"
        if not (folder / "config.json").exists():
            shape = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "head_dim": 64}
            heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1024}
            choice = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 128, "norm_topk_prob": True}
            torch.manual_seed(0)
            Qwen3MoeForCausalLM(Qwen3MoeConfig(**shape, **heads, **choice)).float().save_pretrained(folder)
        return folder

    def _tiny(self, name: str, settings: TinySettings) -> Path:
        from gyre.backends.models.tiny import make_tiny_model

        folder = self.folder / name
        if not folder.exists():
            make_tiny_model(folder, settings)
        return folder


def half_billion() -> Architecture:
    """The shape of Qwen3-0.6B, by its `config.json`: 0.6 billion weights, 0.44 of them outside the embedding."""
    from gyre.backends.models.architecture import Architecture, Rope

    return Architecture(
        model_type="qwen3",
        vocabulary=151_936,
        layers=28,
        hidden_size=1024,
        ffn_size=3072,
        heads=16,
        kv_heads=8,
        head_dim=128,
        norm_epsilon=1e-6,
        rope=Rope(theta=1e6),
        max_positions=131_072,
        tied=True,
        qk_norm=True,
        qkv_bias=False,
    )


def scaled_down() -> Architecture:
    """The same kind of model for a CPU."""
    from dataclasses import replace

    return replace(half_billion(), vocabulary=1024, layers=2, hidden_size=128, ffn_size=256, heads=4, kv_heads=2)


def forked(
    vocabulary: int, *, prompt: int, own: int, output: int, branches: int = 4, executions: int = 2
) -> list[Item]:
    """A group of executions: each has `branches` calls that read one prompt, then `own` tokens, and say `output`."""
    draw = np.random.default_rng(0)
    items = []
    for number in range(executions):
        name = f"{number}-0"
        builder = TreeBuilder(name, "")
        begin = draw.integers(0, vocabulary, prompt).astype(np.int32)
        for turn in range(branches):
            said = draw.integers(0, vocabulary, own + output).astype(np.int32)
            read = np.concatenate((begin, said[:own]))
            builder.add(_call(name, turn, read, said[own:]))
        items.append((ExecutionRecord(name, "0", score=float(number)), builder.close()))
    return items


def _call(execution: str, turn: int, read: np.ndarray, said: np.ndarray) -> CallRecord:
    return CallRecord(
        execution=execution,
        call_id=f"call-{turn}",
        sequence=turn,
        input_ids=read,
        output_ids=said,
        logprobs=np.full(len(said), -6.0, np.float32),
        versions=np.zeros(len(said), np.int32),
        finish=Finish.STOP,
    )


def weighted(items: list[Item]) -> Samples:
    """Their samples, weighted as micro-steps are."""
    return make_samples(items, ALL_PATHS, Baseline.MEAN_STD).weighted(1)
