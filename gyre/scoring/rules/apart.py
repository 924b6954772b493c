"""Questions that are answered in a process of their own, since what they look at may make them hang or grow."""

from __future__ import annotations

import json
import signal
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ..isolated_run import Run, Why
from ..limits import Limits
from .running import run_for_rule
from .verdict import BrokenRuleError, FailedCheckError, Verdict

_PROGRAM: Final = Path(__file__).parent / "judges" / "program.py"
_CRASHES: Final = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE})
_LIMITS: Final = Limits(memory_bytes=2 << 30)


async def judged_apart(question: Mapping[str, Any], seconds: float) -> Verdict:
    """Ask the judge that `question["question"]` names, in a process that runs in an empty folder.

    Raises:
        BrokenRuleError: it could not be asked, or says that the rule does not work.
        FailedCheckError: what it looked at used up its memory, or made it crash.
        TimeoutError: it did not answer in time.
    """
    order = json.dumps({**question, "path": [entry for entry in sys.path if entry]})
    argv = [sys.executable, "-P", "-B", str(_PROGRAM)]
    with tempfile.TemporaryDirectory(prefix="gyre-judge-") as folder:
        run = await run_for_rule(argv, folder=Path(folder), seconds=seconds, limits=_LIMITS, stdin=order.encode())
    return _answer(run)


def _answer(run: Run) -> Verdict:
    if run.why is Why.MEMORY or -(run.exit_code or 0) in _CRASHES:
        raise FailedCheckError(f"cannot be looked at: {run.failure}")
    try:
        answer = json.loads(run.output.last_line)
        if "broken" in answer:
            raise BrokenRuleError(answer["broken"])
        return Verdict(float(answer["passed"]), answer["detail"])
    except (ValueError, KeyError, TypeError) as error:
        why = run.failure or run.last_words
        raise BrokenRuleError(f"the check ended without a result ({why})") from error
