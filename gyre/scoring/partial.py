"""What is kept of an execution that ended, by how it ended.

The rules are those published for QwenGyre ("partial scoring"): what an execution left is evaluated when it ends, by its
own time limit too; where there is no artefact at all, because its environment could not be set up, a placeholder with
reward 0 stands for it; one that met the overall time limit is dropped. An agent that crashed left artefacts like one
that ran out of time, so it is scored. One that was cancelled ended for no reason of its own, and says nothing.
"""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType
from typing import Final

from ..outcome import Outcome

PLACEHOLDER_SCORE: Final = 0.0


class Treatment(StrEnum):
    """What becomes of an execution that ended."""

    SCORE = "score"  # what it left is evaluated
    PLACEHOLDER = "placeholder"  # it counts with PLACEHOLDER_SCORE and has no samples; nothing is evaluated
    DROP = "drop"  # it counts nowhere: neither in the loss nor in its group's baseline


TREATMENTS: Final = MappingProxyType(
    {
        Outcome.COMPLETED: Treatment.SCORE,
        Outcome.HARNESS_TIMEOUT: Treatment.SCORE,
        Outcome.AGENT_ERROR: Treatment.SCORE,
        Outcome.SCORE_FAILED: Treatment.SCORE,  # it ended well; its evaluation failed once and is tried again
        Outcome.ENV_SETUP_FAILED: Treatment.PLACEHOLDER,
        Outcome.OVERALL_TIMEOUT: Treatment.DROP,
        Outcome.CANCELLED: Treatment.DROP,
    }
)


def treatment_of(outcome: Outcome | str) -> Treatment:
    """Return what becomes of an execution with this outcome.

    Raises:
        ValueError: `outcome` is no word of `Outcome`.
    """
    return TREATMENTS[Outcome(outcome)]
