"""What rules on a text have in common: where the text is from."""

from __future__ import annotations

import asyncio
from typing import Self

from pydantic import Field, model_validator

from ...errors import InputError
from .rule import Judging, Rule
from .task_value import TaskText
from .verdict import FailedCheckError


class TextRule(Rule):
    """A rule on one text: a file of the artefacts, the answer, or what a command of another rule printed."""

    file: TaskText | None = None
    answer: bool = False
    output_of: str | None = Field(default=None, description="a command rule of the same file")
    most_bytes: int = Field(default=16 << 20, ge=1, le=1 << 28, description="of the text; a longer one fails")

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.file is not None) + self.answer + (self.output_of is not None) != 1:
            raise ValueError("give exactly one of file, answer and output_of")
        return self

    @property
    def comes_after(self) -> frozenset[str]:
        """The rule whose output it reads, and those that `after` names."""
        return super().comes_after | ({self.output_of} if self.output_of is not None else set())

    def check_before(self, other: Rule, where: str) -> None:
        """Refuse to read the output of a rule that prints nothing."""
        if other.name == self.output_of and other.kind != "command":
            raise InputError(f"{where}: output_of: {other.name!r} is of kind {other.kind}; name a command")

    async def text(self, judging: Judging) -> bytes:
        """Return the text.

        Raises:
            FailedCheckError: there is none, or it is too long.
        """
        if self.file is not None:
            artefacts = judging.artefacts(self.seconds)
            return await asyncio.to_thread(artefacts.read, self.file, self.most_bytes)
        found = judging.subject.answer if self.answer else judging.outputs.get(str(self.output_of))
        if found is None:
            raise FailedCheckError(
                "there is no answer" if self.answer else f"rule {self.output_of!r} was ended, or printed too much"
            )
        content = found.encode("utf-8", "replace")
        if len(content) > self.most_bytes:
            raise FailedCheckError(f"longer than {self.most_bytes:,} bytes")
        return content
