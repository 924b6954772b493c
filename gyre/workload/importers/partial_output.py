"""Old versions of Claude Code log the `output_tokens` of a stream's first event, 1 or 2, instead of the whole."""

from __future__ import annotations

from typing import Final

from ..schema import Quality
from .drafts import DraftExecution
from .log import ImportLog

PARTIAL_OUTPUT_TOKENS: Final = 2


def flag_partial_output(draft: DraftExecution, log: ImportLog) -> None:
    """Count calls of 1 or 2 output tokens, keep them as they are, and set the execution's token quality to inferred."""
    partial = sum(1 for call in draft.calls if 0 < call.output_tokens <= PARTIAL_OUTPUT_TOKENS)
    if partial:
        draft.token_quality = Quality.INFERRED
    log.note(
        "calls",
        "partial_output",
        f"output of at most {PARTIAL_OUTPUT_TOKENS} tokens, which old versions log for a stream's first event; kept, "
        "and the execution's token quality is inferred",
        count=partial,
        example=draft.execution_id,
    )
