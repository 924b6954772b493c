"""From the forest of all calls to the tree: who they are, whose each token is, and where it stands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from ...arrays import BoolArray, Float32Array, Int8Array, Int32Array, Int64Array
from ...role import Role
from ..call import Finish
from ..call_links import CallLinks
from ..roles import RoleFinding, find_roles, label_findings
from ..tree import Refusal, Tree, TreeCalls
from .calls import Entry, Sampled
from .claims import claim, first_calls, nearest_calls
from .committed import Committed, commit
from .layout import Layout, arrange, gather_sampled, gather_tokens
from .media import StandIns
from .radix import Radix
from .spans import Spans

_ROLES: Final = {role: index for index, role in enumerate(Role)}
_FINISHES: Final = {finish: index for index, finish in enumerate(Finish)}


class Material(NamedTuple):
    """All that a builder holds, in the order in which it came."""

    entries: Sequence[Entry]
    refused: Sequence[Refusal]
    radix: Radix
    sampled: Sampled
    stand_ins: StandIns


def finished(execution: str, harness: str, material: Material, *, last: bool = False) -> Tree:
    """Return the tree; without a `harness` it has that of the first call in commit order that names one.

    `last`: the material is not needed any more, and some of it is given up on the way.
    """
    committed, dropped = commit(execution, material.entries, material.radix)
    spans = committed.spans
    harness = harness or next((entry.harness for entry in committed.entries if entry.harness), "")
    findings = _roles(harness, committed)
    role = np.array([_ROLES[finding.role] for finding in findings], np.int8)
    trainable = committed.by_policy() & (role != _ROLES[Role.SIDE])
    owner, duplicates, difference = claim(
        spans.parent,
        spans.depth,
        spans.length,
        spans.input_span,
        spans.output_span,
        trainable,
        committed.first_row(),
        material.sampled.logprobs,
    )
    layout = arrange(spans.parent, spans.length, first_calls(spans.parent, spans.output_span), owner)
    logprobs, versions = _sampled(layout, owner, committed, material.sampled)
    if last:
        material.sampled.let_go()
    tokens = np.empty(int(layout.start[-1]), np.int32)
    gather_tokens(layout.spans, spans.length, spans.offset, material.radix.pool, tokens)
    media_position, media_length, media_digest = material.stand_ins.take(tokens)
    leaf_node, leaf_call, leaf_role = _leaves(layout, spans, role)
    refused = sorted([*material.refused, *dropped], key=lambda found: (found.sequence, found.call_id, found.text))
    return Tree(
        execution=execution,
        harness=harness,
        tokens=tokens,
        node_start=layout.start,
        node_parent=layout.parent,
        node_end=layout.end,
        node_depth=layout.depth,
        node_owner=layout.owner,
        sampled_start=layout.sampled_start,
        logprobs=logprobs,
        versions=versions,
        leaf_node=leaf_node,
        leaf_call=leaf_call,
        leaf_role=leaf_role,
        media_position=media_position,
        media_length=media_length,
        media_digest=media_digest,
        calls=_calls(committed, layout, findings, role, trainable),
        refused=tuple(refused),
        duplicate_tokens=int(duplicates),
        max_logprob_difference=float(difference),
    )


class Nearest(NamedTuple):
    """Of C calls in commit order, the earlier call whose context begins with most of the call's input."""

    call_id: tuple[str, ...]  # C
    parent: Int32Array  # C, row of the latest such call, -1 where no token is shared
    shared_tokens: Int64Array  # C, of the parent's context (its input and output)


def nearest(execution: str, material: Material) -> Nearest:
    """Return what each call that is in the tree continues."""
    committed, _ = commit(execution, material.entries, material.radix)
    spans = committed.spans
    parent, shared = nearest_calls(spans.parent, spans.depth, spans.length, spans.input_span, spans.output_span)
    return Nearest(tuple(entry.call_id for entry in committed.entries), parent, shared)


def _roles(harness: str, committed: Committed) -> Sequence[RoleFinding]:
    """Return each call's role, (C,): as labelled, or where a label is lacking as found from the tree."""
    label = tuple(entry.role for entry in committed.entries)
    by_label = label_findings(label)
    if by_label is not None:
        return by_label
    spans = committed.spans
    parent, shared = nearest_calls(spans.parent, spans.depth, spans.length, spans.input_span, spans.output_span)
    start_s, end_s = committed.times_s()
    return find_roles(
        CallLinks(
            harness=harness,
            label=label,
            thread=tuple(entry.thread for entry in committed.entries),
            parent_thread=tuple(entry.parent_thread for entry in committed.entries),
            by_policy=committed.by_policy(),
            parent=parent,
            shared_tokens=shared,
            input_tokens=committed.input_tokens,
            output_tokens=committed.output_tokens,
            start_s=start_s,
            end_s=end_s,
            finish=tuple(entry.finish for entry in committed.entries),
        )
    )


def _sampled(
    layout: Layout, owner: Int32Array, committed: Committed, sampled: Sampled
) -> tuple[Float32Array, Int32Array]:
    """Return the tree's log-probabilities and versions, (S,) each."""
    spans = committed.spans
    logprobs = np.empty(int(layout.sampled_start[-1]), np.float32)
    versions = np.empty(int(layout.sampled_start[-1]), np.int32)
    gather_sampled(
        layout.spans,
        spans.depth,
        spans.length,
        owner,
        committed.first_row(),
        sampled.logprobs,
        sampled.versions,
        logprobs,
        versions,
    )
    return logprobs, versions


def _leaves(layout: Layout, spans: Spans, role: Int8Array) -> tuple[Int32Array, Int32Array, Int8Array]:
    """Return the node, the first call and the foremost role of each leaf, (L,) each."""
    node_index = np.arange(len(layout.end))
    leaf_node = np.flatnonzero(layout.end == node_index + 1)
    node = layout.span_node[spans.output_span]
    is_end = (layout.end[node] == node + 1) & (layout.span_end[spans.output_span] == np.diff(layout.start)[node])
    call = np.flatnonzero(is_end)
    leaf = np.searchsorted(leaf_node, node[call])
    leaf_call = np.full(len(leaf_node), len(node), np.int32)
    np.minimum.at(leaf_call, leaf, call.astype(np.int32))
    leaf_role = np.full(len(leaf_node), len(Role), np.int8)
    np.minimum.at(leaf_role, leaf, role[call])
    return leaf_node.astype(np.int32), leaf_call, leaf_role


def _calls(
    committed: Committed, layout: Layout, findings: Sequence[RoleFinding], role: Int8Array, trainable: BoolArray
) -> TreeCalls:
    entries, spans = committed.entries, committed.spans
    start_s, end_s = committed.times_s()
    return TreeCalls(
        call_id=tuple(entry.call_id for entry in entries),
        sequence=np.array([entry.sequence for entry in entries], np.int64),
        thread=tuple(entry.thread for entry in entries),
        parent_thread=tuple(entry.parent_thread for entry in entries),
        model=tuple(entry.model for entry in entries),
        role=role,
        role_reason=tuple(finding.reason for finding in findings),
        finish=np.array([_FINISHES[entry.finish] for entry in entries], np.int8),
        trainable=trainable,
        input_tokens=committed.input_tokens,
        output_tokens=committed.output_tokens,
        input_node=layout.span_node[spans.input_span],
        input_offset=layout.span_end[spans.input_span],
        output_node=layout.span_node[spans.output_span],
        output_offset=layout.span_end[spans.output_span],
        start_s=start_s,
        end_s=end_s,
    )
