"""Which executions are evaluated, which count as 0 without it, which are dropped."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gyre.outcome import Outcome
from gyre.scoring.partial import TREATMENTS, Treatment, treatment_of


def test_every_outcome_has_a_treatment() -> None:
    assert set(TREATMENTS) == set(Outcome)


@pytest.mark.parametrize(
    ("outcome", "treatment"),
    [
        ("completed", Treatment.SCORE),
        ("harness_timeout", Treatment.SCORE),  # "the harness's own time-out is scored"
        ("agent_error", Treatment.SCORE),
        ("env_setup_failed", Treatment.PLACEHOLDER),  # "no artefact at all gives a placeholder with reward 0"
        ("overall_timeout", Treatment.DROP),  # "the overall time-out is dropped"
        ("cancelled", Treatment.DROP),
    ],
)
def test_outcomes_are_treated_as_published(outcome: str, treatment: Treatment) -> None:
    assert treatment_of(outcome) is treatment_of(Outcome(outcome)) is treatment


def test_an_infrastructure_failure_is_not_a_normal_end() -> None:
    """UniRL#214: a container that never came up was trained as an agent that did nothing wrong."""
    assert treatment_of(Outcome.ENV_SETUP_FAILED) is not treatment_of(Outcome.COMPLETED)
    with pytest.raises(ValueError, match="container_lost"):
        treatment_of("container_lost")


def test_the_scheduler_can_ask_without_loading_tables() -> None:
    code = "import gyre.scoring.partial, sys; print([m for m in ('polars', 'pydantic', 'aiohttp') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
