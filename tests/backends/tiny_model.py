"""A tiny random Qwen3 with a byte-level tokenizer and a chat template of the Qwen kind, made in a second or two.

`python tiny_model.py FOLDER [SEED]` makes one by hand. Different seeds give different weights and the same tokenizer.
"""

from __future__ import annotations

import sys
from pathlib import Path

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MARKERS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")
CONTEXT_TOKENS = 4096

CORPUS = (
    "The quick brown fox jumps over the lazy dog. She sells sea shells by the sea shore.",
    "system user assistant tool function name arguments parameters description type object string number",
    '{"name": "read_file", "arguments": {"path": "src/main.py"}}\n{"name": "bash", "arguments": {"command": "ls -la"}}',
    "def add(first, second):\n    return first + second\n\n\nclass Stack:\n    def push(self, item): ...\n",
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n",
    "0 1 2 3 4 5 6 7 8 9 10 11 12 100 1000",
)

CHAT_TEMPLATE = r"""
{%- if tools %}
{{- '<|im_start|>system\n' }}
{%- if messages[0].role == 'system' %}{{- messages[0].content + '\n\n' }}{%- endif %}
{{- '# Tools\n\nYou may call one or more functions to assist with the user query.\n<tools>' }}
{%- for tool in tools %}{{- '\n' }}{{- tool | tojson }}{%- endfor %}
{{- '\n</tools>\n\nCall as <tool_call>\n{"name": ..., "arguments": ...}\n</tool_call><|im_end|>\n' }}
{%- elif messages[0].role == 'system' %}
{{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
{%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- elif message.role == 'assistant' %}
{{- '<|im_start|>assistant\n' }}
{%- if message.reasoning_content %}{{- '<think>\n' + message.reasoning_content + '\n</think>\n\n' }}{%- endif %}
{{- message.content or '' }}
{%- for call in message.tool_calls or [] %}
{%- set function = call.function if call.function else call %}
{%- if (loop.first and message.content) or not loop.first %}{{- '\n' }}{%- endif %}
{{- '<tool_call>\n{"name": "' + function.name + '", "arguments": ' }}
{{- function.arguments if function.arguments is string else function.arguments | tojson }}
{{- '}\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\n' }}
{%- elif message.role == 'tool' %}
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
{{- '\n<tool_response>\n' + message.content + '\n</tool_response>' }}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\n' }}{%- endif %}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}
""".strip()


def make_tiny_model(folder: Path, seed: int = 0) -> None:
    """Write tokenizer, configuration and float32 weights (about 0.5 MB), as transformers and SGLang load them."""
    import torch
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=_tokenizer(), eos_token=SPECIAL[2], pad_token=SPECIAL[0], model_max_length=CONTEXT_TOKENS
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.save_pretrained(folder)
    config = Qwen3Config(
        vocab_size=-(-len(tokenizer) // 64) * 64,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=CONTEXT_TOKENS,
        rope_theta=10_000.0,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=tokenizer.convert_tokens_to_ids(SPECIAL[2]),
        pad_token_id=tokenizer.convert_tokens_to_ids(SPECIAL[0]),
        dtype=torch.float32,
    )
    torch.manual_seed(seed)
    model = Qwen3ForCausalLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:  # larger than the default, so that replies differ from near-uniform noise
                parameter.normal_(0, 0.15)
    model.save_pretrained(folder)


def _tokenizer():
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(CORPUS * 20, trainers.BpeTrainer(vocab_size=1000, initial_alphabet=alphabet))
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in SPECIAL])
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in MARKERS])
    return tokenizer


if __name__ == "__main__":
    make_tiny_model(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
