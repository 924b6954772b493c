"""Which drafted executions of a source are worth keeping."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from .drafts import DraftExecution
from .files import nothing_left
from .log import ImportLog


def with_calls(
    drafts: Iterable[tuple[Path, DraftExecution]], log: ImportLog, *, source: Path, what: str, rule: str, says: str
) -> list[DraftExecution]:
    """The executions that hold a call; `log` counts the others as skipped by `rule`, which `says` states.

    Args:
        drafts: each with the file that it was read from.
        log: of the import.
        source: the path that is imported.
        what: such an execution in the source's words.
        rule: name of the finding.
        says: what the finding says.

    Raises:
        InputError: none holds a call.
    """
    kept: list[DraftExecution] = []
    for file, draft in drafts:
        if draft.calls:
            kept.append(draft)
        else:
            log.skip(file.name, rule, says)
    if not kept:
        raise nothing_left(source, what, log.report())
    return kept
