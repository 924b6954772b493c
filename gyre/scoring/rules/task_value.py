"""Values of a rule that each task brings itself: written `{ task = "field" }` in the rules file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import ValidatorFunctionWrapHandler, WrapValidator

from .verdict import BrokenRuleError


@dataclass(frozen=True, slots=True)
class FromTask:
    """Stands in a rule for a field of the task's data, `a.b` for `b` within `a`, until the task is known."""

    field: str

    def value(self, data: Mapping[str, Any]) -> Any:
        """Return the field.

        Raises:
            BrokenRuleError: the task has no such field.
        """
        found: Any = data
        for part in self.field.split("."):
            if not isinstance(found, Mapping) or part not in found:
                raise BrokenRuleError(f"the task's data has no field {self.field!r}")
            found = found[part]
        return found


def _or_from_task(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    if isinstance(value, FromTask):
        return value
    if isinstance(value, dict) and value.keys() == {"task"} and isinstance(value["task"], str):
        return FromTask(value["task"])
    return handler(value)


# For fields that a task may fill. Their static type holds as soon as it has (`Rule.for_task`).
OR_FROM_TASK = WrapValidator(_or_from_task)
TaskText = Annotated[str, OR_FROM_TASK]


def filled(value: Any, data: Mapping[str, Any]) -> Any:
    """Return `value` with what stands for fields of the task replaced by them, one level of tuple included."""
    if isinstance(value, FromTask):
        return value.value(data)
    if isinstance(value, tuple):
        return tuple(filled(one, data) for one in value)
    return value


def has_open_fields(value: Any) -> bool:
    """Return whether something in `value` waits for its task."""
    return isinstance(value, FromTask) or (isinstance(value, tuple) and any(map(has_open_fields, value)))
