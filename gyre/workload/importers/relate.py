"""Infers how a call's context derives from the call before it in its thread, from token counts alone."""

from __future__ import annotations

from ...role import Role
from ..schema import Relation
from .drafts import DraftCall


def relate(call: DraftCall, before: DraftCall) -> None:
    """Set parent, relation, prefix and dropped tokens of `call`.

    An input at least as long as the one before appends to it, with all of its context (at most the whole input) as
    prefix. A shorter one is a branch whose prefix is what the provider read from its cache. A call marked as a
    compaction stays one if its input is shorter. After a summary call the prefix comes from the call that was
    summarised.
    """
    if before.role in (Role.MAIN_SUMMARY, Role.SUB_AGENT_SUMMARY) and before.parent is not None:
        before = before.parent
    grown = call.input_tokens >= before.input_tokens
    call.parent = before
    if grown:
        call.relation = Relation.APPEND
    elif call.relation is not Relation.COMPACTION:
        call.relation = Relation.BRANCH
    whole = before.context_tokens if grown else call.cached_tokens or 0
    call.prefix_tokens = min(whole, before.context_tokens, call.input_tokens)
    call.dropped_tokens = 0 if grown else before.context_tokens - call.prefix_tokens
