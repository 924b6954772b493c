"""Reads the folder of a run by `gyre run`: its journal, and the log of calls that the proxy wrote.

- The recorded groups are the run's groups, in the order of dispatch. Executions that were lost, cancelled or had not
  ended when the run did are left out and counted.
- A call starts when its prompt was made and it asked for an engine; the wait before it, from the reply before, is the
  harness's and the proxy's. In logs without that time it starts when the request came.
- Set-up lasts from the command to start an execution to the start of its first call, and the time is added that the
  harness took to end after its last. Scoring is what the evaluations took; where that was not recorded, the time from
  the end to the score, which a queue for evaluators is part of.
- Parents and prefixes are found by comparing token ids. A call without use for training (it was given up, say) is left
  out: its time is part of the wait of the call after it.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from ...outcome import Outcome
from ..findings import Report
from ..recorded_run.marker import is_run_folder
from ..schema import Quality
from ..trace import Trace
from .assemble import assemble
from .drafts import DraftExecution
from .files import nothing_left
from .gyre_run_calls import drafted
from .log import ImportLog

if TYPE_CHECKING:
    from ...trajectory.tree import Refusal
    from ..recorded_run.folder import RunFolder
    from ..recorded_run.history import RunExecution, RunGroup

_CUT: Final = (Outcome.HARNESS_TIMEOUT, Outcome.OVERALL_TIMEOUT)


def detect(path: Path) -> bool:
    """A folder with the journal of a run."""
    return is_run_folder(path)


def read(path: Path) -> tuple[Trace, Report]:
    """Read a run's folder.

    Raises:
        InputError: as `RunFolder`, or no execution of the run has ended.
    """
    from ..recorded_run.folder import RunFolder

    log = ImportLog()
    with RunFolder(path) as run:
        drafts = [
            draft
            for group in run.history.groups.values()
            for number in group.executions
            if (draft := _draft(run, group, run.history.executions[number], log)) is not None
        ]
        _note_damage(run, log)
    if not drafts:
        raise nothing_left(path, "execution that ended", log.report())
    _assume_scoring(drafts, log)
    return assemble(drafts), log.report()


def _assume_scoring(drafts: list[DraftExecution], log: ImportLog) -> None:
    """Let evaluations that had not come back when the run ended take as long as others."""
    known = [draft.scoring_s for draft in drafts if draft.reward is not None]
    waiting = [draft for draft in drafts if draft.reward is None and not draft.score_failed]
    usual_s = median(known) if known else 0.0
    for draft in waiting:
        draft.scoring_s = max(draft.scoring_s, usual_s)
    says = "no evaluation had come back: it is taken to last as long as others, in the median"
    log.assume("executions", "unscored", says, count=len(waiting))


def _draft(run: RunFolder, group: RunGroup, execution: RunExecution, log: ImportLog) -> DraftExecution | None:
    if why := _left_out(execution):
        log.skip("journal.jsonl", *why, example=execution.lost or execution.cancelled)
        return None
    assert execution.ended_s is not None and execution.outcome is not None  # noqa: PT018 (one thought)
    name = run.name(execution)
    record = None if name is None else run.record(name)
    draft = DraftExecution(
        execution_id=name or f"{execution.number}-0",
        source="gyre-run",
        group_id=str(group.number),
        task=(record.task if record else "") or str(group.task),
        harness=(record.harness if record else "") or None,
        outcome=execution.outcome,
        reward=execution.score if execution.valid else None,
        score_failed=execution.scored_s is not None and not execution.valid,
        censored=execution.outcome in _CUT,
    )
    if name is not None:
        calls, refused = drafted(name, run.calls(name))
        draft.calls = calls
        draft.model = next((call.model for call in calls if call.model), None)
        _note_refused(refused, log)
    _set_times(draft, execution, run.evaluation_s(draft.execution_id), log)
    if draft.score_failed and draft.outcome is Outcome.COMPLETED:
        draft.outcome = Outcome.SCORE_FAILED
    return draft


def _left_out(execution: RunExecution) -> tuple[str, str] | None:
    """The rule by which an execution is left out, and what it says."""
    if execution.lost:
        return "lost", "an execution was lost: nothing says how long it would have taken"
    if execution.cancelled and not execution.valid:
        return "cancelled", "an execution was cancelled by the run"
    if execution.asked_s is None:
        return "never_started", "an execution waited still when the run ended"
    if execution.ended_s is None:
        return "not_ended", "an execution was still going on when the run ended"
    return None


def _set_times(draft: DraftExecution, execution: RunExecution, evaluation_s: float | None, log: ImportLog) -> None:
    """Set set-up, scoring and wall time, and count the calls' times from the first one's start."""
    assert execution.asked_s is not None and execution.ended_s is not None  # noqa: PT018 (one thought)
    asked_s, ended_s = execution.asked_s, execution.ended_s
    begun_s = asked_s if execution.begun_s is None else execution.begun_s
    first_s = min((call.start_s for call in draft.calls if call.start_s is not None), default=None)
    last_s = max((call.end_s for call in draft.calls if call.end_s is not None), default=None)
    # A call's times count from when the proxy was told of the execution, a moment before its harness began.
    if first_s is None or last_s is None:
        draft.setup_s, left_s = ended_s - asked_s, ended_s
        draft.time_quality = Quality.ABSENT if draft.calls else Quality.RECORDED
    else:
        draft.setup_s, left_s = max(0.0, begun_s + first_s - asked_s), begun_s + last_s
        draft.count_time_from_first_call()
        log.assume("executions", "clock", "an execution's calls are counted from the start of its harness")
    draft.wall_s = ended_s - begun_s
    # A trace has no place for the time in which a harness ends after its last call, but set-up.
    draft.setup_s += max(0.0, ended_s - left_s)
    if evaluation_s is not None:
        draft.scoring_s = evaluation_s
    elif execution.scored_s is not None:
        draft.scoring_s = execution.scored_s - ended_s


def _note_refused(refused: list[Refusal], log: ImportLog) -> None:
    for reason, count in Counter(refusal.reason for refusal in refused).items():
        example = next(refusal.text for refusal in refused if refusal.reason == reason)
        for _ in range(count):
            log.skip("log of calls", reason, "a call cannot be used; the next wait holds its time", example=example)


def _note_damage(run: RunFolder, log: ImportLog) -> None:
    for problem in run.problems:
        log.skip("log of calls", "damaged", "a part of the log cannot be read", example=problem)
    if run.torn_line is not None:
        log.skip("journal.jsonl", "torn", "the last line is cut off", row=run.torn_line)
    log.note("log of calls", "strangers", "executions that the journal does not know", count=run.strangers)
    says = "the run was taken up again; its times hold what was lost"
    log.note("journal.jsonl", "resumed", says, count=run.history.resumed)
    if not run.history.stopped:
        log.note("journal.jsonl", "unfinished", "the run did not come to its last step")
