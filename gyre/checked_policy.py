"""A policy as the controller asks it: its answers are checked, its faults are named."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from .cluster import CellRole
from .errors import InputError
from .policies.base import Move, Policy
from .view import View

MOST_GROUPS_AT_ONCE: Final = 1_000_000

Answer = TypeVar("Answer")


class CheckedPolicy:
    """Puts the questions to a policy. A wrong answer is an InputError that names the policy and the question."""

    def __init__(self, policy: Policy, view: View) -> None:
        self.policy = policy
        self._view = view

    def dispatch(self) -> int:
        """How many groups to dispatch now."""
        return self._count("dispatch", self._ask(self.policy.dispatch), MOST_GROUPS_AT_ONCE)

    def moves(self) -> list[Move]:
        """Which cells take another role now; whether they can is for the fleet to say."""
        answer: Any = self._ask(self.policy.moves)
        try:
            return [(int(cell), CellRole(role)) for cell, role in answer]
        except (TypeError, ValueError) as error:
            raise self.fault("moves", f"it answers {answer!r}, not pairs of a cell and a CellRole") from error

    def take(self) -> int:
        """How many ready groups the open step takes now."""
        return self._count("take", self._ask(self.policy.take), self._view.ready_groups)

    def opens(self) -> bool:
        """Whether to open a step."""
        return bool(self._ask(self.policy.opens))

    def closes(self) -> bool:
        """Whether the open step takes no more groups."""
        return bool(self._ask(self.policy.closes))

    def ends_burst(self) -> bool:
        """Whether to publish after this update."""
        return bool(self._ask(self.policy.ends_burst))

    def wake_s(self) -> float | None:
        """When to ask again though nothing happened."""
        return self._ask(self.policy.wake_s)

    def fault(self, question: str, what: str) -> InputError:
        """Return the error that says what is wrong with an answer."""
        return InputError(f"policy {self.policy.name}: {question}: {what}")

    def _count(self, question: str, answer: Any, most: int) -> int:
        if not isinstance(answer, int) or not 0 <= answer <= most:
            raise self.fault(question, f"it answers {answer!r} groups; give 0 to {most}")
        return answer

    def _ask(self, question: Callable[[View], Answer]) -> Answer:
        try:
            return question(self._view)
        except (InputError, KeyboardInterrupt):
            raise
        except BaseException as error:  # a user's own code may fail, or try to exit, in any way
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(place.filename).name}, line {place.lineno}"
            raise self.fault(question.__name__, f"{type(error).__name__}: {error} ({where})") from error
