"""One execution's calls as a tree in which each token stands once per prefix."""

from __future__ import annotations

from dataclasses import dataclass

from ..arrays import BoolArray, Float32Array, FloatArray, Int8Array, Int32Array, Int64Array


@dataclass(frozen=True, slots=True)
class Refusal:
    """A call that is not in the tree, and why."""

    call_id: str
    sequence: int
    reason: str  # a short word, for counting: a member of `gyre.trajectory.check.Reason`
    text: str  # one line for people


@dataclass(frozen=True, slots=True, eq=False)
class TreeCalls:
    """The C calls in a tree, in commit order.

    A tip is the place of a call's last token: a node, and how many of the node's tokens come up to and with it (from 1
    to the node's length).
    """

    call_id: tuple[str, ...]
    sequence: Int64Array
    thread: tuple[str, ...]
    parent_thread: tuple[str, ...]
    model: tuple[str, ...]
    role: Int8Array  # index into list(Role)
    role_reason: tuple[str, ...]  # what gave the role, in a few words; "label": the caller did
    finish: Int8Array  # index into list(Finish)
    trainable: BoolArray  # sampled by the policy, for a role that is trained
    input_tokens: Int64Array
    output_tokens: Int64Array
    input_node: Int32Array  # tip of the input
    input_offset: Int64Array
    output_node: Int32Array  # tip of the output
    output_offset: Int64Array
    start_s: FloatArray  # since the execution's start; NaN where unknown
    end_s: FloatArray

    def __len__(self) -> int:
        """Number of calls C."""
        return len(self.call_id)


@dataclass(frozen=True, slots=True, eq=False)
class Tree:
    """M nodes, U tokens, S of them sampled by a trainable call, L leaves; a forest, for calls need not share a token.

    A node is a run of tokens without a branch inside and of one origin: context, or the output of one call (its owner).
    Neighbours that could be one node are one. Nodes stand depth first, children in the order of the first call that
    goes through them. So the tree depends on the calls alone, not on the order in which they came.
    """

    execution: str
    harness: str
    tokens: Int32Array  # U, node after node
    node_start: Int64Array  # M + 1, CSR into tokens
    node_parent: Int32Array  # M, -1 at a root
    node_end: Int32Array  # M, exclusive index of the last node below (its subtree is [node, node_end))
    node_depth: Int64Array  # M, tokens before the node on its path
    node_owner: Int32Array  # M, row of the first committed trainable call that sampled these tokens here; -1: context
    sampled_start: Int64Array  # M + 1, CSR into logprobs and versions: all tokens of an owned node, none of another
    logprobs: Float32Array  # S, as the owner recorded them
    versions: Int32Array  # S, -1 where unknown
    leaf_node: Int32Array  # L, nodes without children
    leaf_call: Int32Array  # L, first committed call whose output ends there
    leaf_role: Int8Array  # L, index into list(Role): the first in priority of the calls whose output ends there
    media_position: Int64Array  # K, index into tokens of the first placeholder of each medium
    media_length: Int64Array  # K
    media_digest: tuple[str, ...]  # K
    calls: TreeCalls
    refused: tuple[Refusal, ...]
    duplicate_tokens: int  # sampled again at a prefix where an earlier committed call had sampled them
    max_logprob_difference: float  # between a duplicate and what stands in `logprobs`; 0 where there is none

    @property
    def unique_tokens(self) -> int:
        """U."""
        return len(self.tokens)

    @property
    def sampled_tokens(self) -> int:
        """S, the tokens that may be trained."""
        return len(self.logprobs)
