"""What each trainer's documented mean over tokens makes of exported data: plain loops over the data alone.

Each function returns the factor with which minus the objective of a token enters the loss, summed over the rows, by
execution and prefix. Tokens that no row trains are not there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from exchange_samples import Edge

Coefficients = dict[Edge, float]


def summed(terms: Iterable[tuple[str, list[int], int, float]]) -> Coefficients:
    """Sum terms of (execution, the row's tokens, place in the row, factor) by edge."""
    total: defaultdict[Edge, float] = defaultdict(float)
    for execution, tokens, place, factor in terms:
        total[execution, tuple(tokens[: place + 1])] += factor
    return dict(total)


def slime(rows: list[dict[str, Any]]) -> Coefficients:
    """Each token over the mask sum of its rollout_id, then over the number of rollouts."""
    sums: defaultdict[int, int] = defaultdict(int)
    for row in rows:
        sums[row["rollout_id"]] += sum(row["loss_mask"])
    return summed(
        (
            row["metadata"]["execution"],
            row["tokens"],
            len(row["tokens"]) - row["response_length"] + place,
            row["reward"] / sums[row["rollout_id"]] / len(sums),
        )
        for row in rows
        for place, trained in enumerate(row["loss_mask"])
        if trained
    )


def verl(data: dict[str, Any]) -> Coefficients:
    """`agg_loss`: a sum over the response mask, over what the mode says."""
    tensors, mode = data["tensors"], data["meta_info"]["loss_agg_mode"]
    mask = tensors["response_mask"].tolist()
    divisor = {
        "token-sum": 1,
        "token-mean": sum(map(sum, mask)),
        "seq-mean-token-sum": sum(any(row) for row in mask),
    }[mode]
    terms = []
    for row, trained in enumerate(mask):
        width = tensors["prompts"].shape[1]
        padding = tensors["attention_mask"][row].tolist().index(1)
        tokens = tensors["input_ids"][row].tolist()
        for place, one in enumerate(trained):
            if one:
                factor = float(tensors["advantages"][row, place]) / divisor
                execution = data["non_tensors"]["execution"][row]
                terms.append((execution, tokens[padding:], width - padding + place, factor))
    return summed(terms)


def skyrl(data: dict[str, Any]) -> Coefficients:
    """The last step's reward to all steps of its trajectory, which end where is_last_step is true; then token_mean."""
    total = sum(map(sum, data["loss_masks"]))
    ends = [row for row, last in enumerate(data["is_last_step"]) if last]
    terms = []
    for row, mask in enumerate(data["loss_masks"]):
        reward = data["rewards"][next(end for end in ends if end >= row)]
        identity = data["trajectory_ids"][row]
        tokens = data["prompt_token_ids"][row] + data["response_ids"][row]
        for place, trained in enumerate(mask, len(data["prompt_token_ids"][row])):
            if trained:
                terms.append((identity.to_string(), tokens, place, reward / total))
    return summed(terms)


def prime_rl(rows: list[dict[str, Any]]) -> Coefficients:
    """rl_weights times advantages over the tokens with mask and a weight that is not 0."""
    terms = [
        (row["trace_id"], row["token_ids"], place, row["rl_weights"][place] * row["advantages"][place])
        for row in rows
        for place, trained in enumerate(row["mask"])
        if trained and row["rl_weights"][place] != 0
    ]
    return summed((execution, tokens, place, factor / len(terms)) for execution, tokens, place, factor in terms)


def trl(data: dict[str, Any]) -> Coefficients:
    """loss_type "dapo": the masked sum over num_items_in_batch."""
    terms = []
    for row, advantage in enumerate(data["advantages"].tolist()):
        prompt = data["prompt_ids"][row][data["prompt_mask"][row] == 1].tolist()
        tokens = prompt + data["completion_ids"][row].tolist()
        mask = (data["completion_mask"][row] * data["tool_mask"][row]).tolist()
        terms += [
            (data["execution"][row], tokens, len(prompt) + place, advantage / float(data["num_items_in_batch"]))
            for place, trained in enumerate(mask)
            if trained
        ]
    return summed(terms)


def tinker(rows: list[dict[str, Any]]) -> Coefficients:
    """A sum over all positions; position i predicts target i, which is token i + 1."""
    terms = []
    for row in rows:
        inputs = row["loss_fn_inputs"]
        for place, target in enumerate(inputs["target_tokens"].tolist()):
            if inputs["mask"][place]:
                tokens = [*row["model_input"][: place + 1], target]
                terms.append((row["execution"], tokens, place + 1, float(inputs["advantages"][place])))
    return summed(terms)


def lists(rows: list[dict[str, Any]]) -> Coefficients:
    """A sum of loss_weights."""
    return summed(
        (row["execution"], row["tokens"], place, row["loss_weights"][place])
        for row in rows
        for place, trained in enumerate(row["loss_mask"])
        if trained
    )


def csr(data: dict[str, Any]) -> Coefficients:
    """A sum of loss_weights; tensors are taken as arrays are."""
    starts = data["row_start"].tolist()
    terms = []
    for row, execution in enumerate(data["row_execution"].tolist()):
        at = slice(starts[row], starts[row + 1])
        tokens, mask = data["tokens"][at].tolist(), data["loss_mask"][at].tolist()
        weights = data["loss_weights"][at].tolist()
        terms += [(data["execution"][execution], tokens, i, weights[i]) for i in range(len(tokens)) if mask[i]]
    return summed(terms)


REDUCTIONS: dict[str, Callable[[Any], Coefficients]] = {
    "slime": slime,
    "miles": slime,
    "verl": verl,
    "skyrl": skyrl,
    "prime-rl": prime_rl,
    "trl": trl,
    "tinker": tinker,
    "lists": lists,
    "numpy": csr,
    "torch": csr,
}
