"""A tiny random Qwen3 with a byte-level tokenizer and a chat template of the Qwen kind, for trials and tests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ...atomic import write_folder_atomic
from ...errors import InputError
from .quiet import quiet_bars

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast, Qwen3Config

END_OF_TEXT, TURN, END_OF_TURN = SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MARKERS: Final = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")

_TEMPLATE: Final = Path(__file__).with_name("tiny_chat_template.jinja")
_SPREAD: Final = 0.15  # of weights; above the usual 0.02, so that replies differ from near-uniform noise
_VOCABULARY_STEP: Final = 64

_CORPUS: Final = (
    "The quick brown fox jumps over the lazy dog. She sells sea shells by the sea shore.",
    "system user assistant tool function name arguments parameters description type object string number",
    '{"name": "read_file", "arguments": {"path": "src/main.py"}}\n{"name": "bash", "arguments": {"command": "ls -la"}}',
    "def add(first, second):\n    return first + second\n\n\nclass Stack:\n    def push(self, item): ...\n",
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n",
    "0 1 2 3 4 5 6 7 8 9 10 11 12 100 1000",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TinySettings:
    """Size of the model; the same settings give the same weights."""

    seed: int = 0  # other seeds give other weights and the same tokenizer
    layers: int = 2
    hidden: int = 64
    ffn: int = 128
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    context: int = 4096  # tokens
    tied: bool = False  # the output layer is the embedding

    def __post_init__(self) -> None:
        """Refuse sizes that no model has.

        Raises:
            InputError: heads do not share out, or a head's channels are not pairs.
        """
        if self.heads % self.kv_heads:
            raise InputError(f"kv-heads is {self.kv_heads}, which does not divide {self.heads} heads; give another")
        if self.head_dim % 2:
            raise InputError(f"head-dim is {self.head_dim}: rotary positions turn pairs of channels; give an even one")


def make_tiny_model(folder: Path, settings: TinySettings | None = None) -> None:
    """Write tokenizer, configuration and float32 weights, as transformers and SGLang load them; 0.5 MB by default.

    An older folder is replaced whole.

    Raises:
        InputError: the system refuses to write.
    """
    import torch
    from transformers import Qwen3ForCausalLM

    settings = settings or TinySettings()
    tokenizer = tiny_tokenizer(settings.context)
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(settings.seed)
        model = Qwen3ForCausalLM(_configuration(settings, tokenizer)).float()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() > 1:
                    parameter.normal_(0, _SPREAD)

    def fill(temporary: Path) -> None:
        tokenizer.save_pretrained(temporary)
        with quiet_bars():
            model.save_pretrained(temporary)

    write_folder_atomic(folder, fill)


def tiny_tokenizer(context: int = 4096) -> PreTrainedTokenizerFast:
    """Return the tokenizer with its chat template; made anew each time, always the same."""
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=_byte_pairs(), eos_token=END_OF_TURN, pad_token=END_OF_TEXT, model_max_length=context
    )
    tokenizer.chat_template = _TEMPLATE.read_text("utf-8").strip()
    return tokenizer


def _configuration(settings: TinySettings, tokenizer: PreTrainedTokenizerFast) -> Qwen3Config:
    import torch
    from transformers import Qwen3Config

    values: dict[str, Any] = {
        "vocab_size": -(-len(tokenizer) // _VOCABULARY_STEP) * _VOCABULARY_STEP,
        "hidden_size": settings.hidden,
        "intermediate_size": settings.ffn,
        "num_hidden_layers": settings.layers,
        "num_attention_heads": settings.heads,
        "num_key_value_heads": settings.kv_heads,
        "head_dim": settings.head_dim,
        "max_position_embeddings": settings.context,
        "rope_theta": 10_000.0,
        "tie_word_embeddings": settings.tied,
        "bos_token_id": None,
        "eos_token_id": tokenizer.convert_tokens_to_ids(END_OF_TURN),
        "pad_token_id": tokenizer.convert_tokens_to_ids(END_OF_TEXT),
        "dtype": torch.float32,
    }
    return Qwen3Config(**values)


def _byte_pairs() -> Tokenizer:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=1000, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(_CORPUS * 20, trainer)
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in SPECIAL])
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in MARKERS])
    return tokenizer
