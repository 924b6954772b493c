"""How a harness is told that its execution has reached a limit.

No status code stops them all: some repeat a request for ever whatever the error, and some take a reply without a tool
call for a fault and ask again. A plain last answer ends most, so that comes first; who asks on gets errors.
"""

from __future__ import annotations

from typing import Final

from gyre.trajectory.call import Finish

from .execution import Execution
from .reply import End, Failure, TextDelta, Usage
from .transcript import Transcript

# It takes a reply without a tool call for a mistake as often as it may take steps. mini-swe-agent does so too, but ends
# after three in a row; an error of permission it repeats ten times in four minutes (litellm does not tell it so).
_ERRORS_ONLY: Final = frozenset({"smolagents"})


def farewell(execution: Execution, harness: str, limit: str, most: int) -> Transcript | Failure:
    """Return the last answer, of which there are at most so many, or an error."""
    text = f"This execution has reached {limit}. No more work can be done; stop here."
    if execution.farewells >= most or harness.lower() in _ERRORS_ONLY:
        return Failure("ended", text)
    execution.farewells += 1
    transcript = Transcript()
    transcript.begin(0)
    transcript.add((TextDelta(text),), 0.0)
    transcript.finish(End(Finish.STOP, Usage(0, 0, 0)))
    return transcript
