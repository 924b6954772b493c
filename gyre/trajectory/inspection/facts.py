"""A tree as plain values for machines."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from ..call import Finish
from .drops import Drop
from .view import ROLES, TreeView

_FINISHES = tuple(Finish)


def inspection_facts(view: TreeView) -> dict[str, Any]:
    """Return counts, leaves, calls, drops and refused calls of one execution; every value has a JSON form."""
    tree = view.tree
    return {
        "execution": tree.execution,
        "harness": tree.harness,
        "calls": len(tree.calls),
        "refused_calls": len(tree.refused),
        "nodes": len(tree.node_parent),
        "unique_tokens": tree.unique_tokens,
        "sampled_tokens": tree.sampled_tokens,
        "trained_tokens": int(view.trained.sum()) if view.rows is not None else None,
        "duplicate_tokens": tree.duplicate_tokens,
        "max_logprob_difference": _known(float(tree.max_logprob_difference)),
        "leaves": _leaves(view),
        "call_table": call_rows(view),
        "drops": [_drop(view, drop) for drop in view.drops],
        "refused": [asdict(refusal) | {"reason": str(refusal.reason)} for refusal in tree.refused],
    }


def _leaves(view: TreeView) -> list[dict[str, Any]]:
    tree = view.tree
    return [
        {
            "leaf": leaf,
            "call": tree.calls.call_id[row] if (row := int(tree.leaf_call[leaf])) >= 0 else None,
            "role": ROLES[tree.leaf_role[leaf]].value,
            "tokens": int(view.leaf_tokens[leaf]),
            "selected": int(view.leaf_order[leaf]) or None,
        }
        for leaf in range(len(tree.leaf_node))
    ]


def call_rows(view: TreeView) -> list[dict[str, Any]]:
    """Return one row of plain values for each call in the tree, in commit order."""
    calls = view.tree.calls
    rows = []
    for row in range(len(calls)):
        span = view.call_versions[row]
        rows.append(
            {
                "call": calls.call_id[row],
                "sequence": int(calls.sequence[row]),
                "thread": calls.thread[row],
                "role": ROLES[calls.role[row]].value,
                "role_reason": calls.role_reason[row],
                "model": calls.model[row],
                "finish": _FINISHES[calls.finish[row]].value,
                "input_tokens": int(calls.input_tokens[row]),
                "output_tokens": int(calls.output_tokens[row]),
                "trained_tokens": int(view.call_trained[row]) if view.rows is not None else None,
                "versions": None if span is None else list(span),
                "logprob_mean": _known(float(view.call_logprob_mean[row])),
                "start_s": _known(float(calls.start_s[row])),
                "end_s": _known(float(calls.end_s[row])),
            }
        )
    return rows


def _drop(view: TreeView, drop: Drop) -> dict[str, Any]:
    ids = view.tree.calls.call_id
    return asdict(drop) | {"kind": drop.kind.value, "earlier": ids[drop.earlier], "later": ids[drop.later]}


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None
