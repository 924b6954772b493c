"""Log-probs of a reply, computed again with transformers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from engine_faults import logprobs, tokens, versions

from gyre.backends.engines.engine import Chunk, Generation


def differences(models: Mapping[int, Any], generation: Generation, chunks: list[Chunk]) -> dict[int, float]:
    """The largest difference to transformers in a reply's log-probs, by the version that each token is said to have."""
    out, found = tokens(chunks), {}
    assert len(out) == len(logprobs(chunks)) == len(versions(chunks)) > 0
    row = torch.tensor([[*generation.input_ids.tolist(), *out]])
    for version in set(versions(chunks)):
        with torch.no_grad():
            logits = models[version](row).logits[0, len(generation.input_ids) - 1 : -1]
        # The engine samples no end of text before the fewest tokens have come, and its log-probs are of that.
        logits[: generation.sampling.min_new_tokens, models[version].config.eos_token_id] = -torch.inf
        reference = torch.log_softmax(logits / generation.sampling.temperature, -1)
        chosen = reference[torch.arange(len(out)), torch.tensor(out)]
        those = torch.tensor(versions(chunks)) == version
        found[version] = (chosen - torch.tensor(logprobs(chunks)))[those].abs().max().item()
    return found
