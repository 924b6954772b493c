"""A regular expression that a text must match, or must not."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from ..apart import judged_apart
from ..rule import Judging
from ..task_value import OR_FROM_TASK, FromTask
from ..text_rule import TextRule
from ..verdict import Verdict


class Flag(StrEnum):
    """Flags of Python's `re`."""

    IGNORECASE = "ignorecase"
    MULTILINE = "multiline"
    DOTALL = "dotall"
    VERBOSE = "verbose"
    ASCII = "ascii"


class Must(StrEnum):
    """What a text must do."""

    MATCH = "match"
    NOT_MATCH = "not_match"


class RegexRule(TextRule):
    """Passes if the pattern is found often enough in the text, and not too often. Python's `re`; found anywhere.

    A file that is not there fails, also where nothing must match: deleting it is no way to pass.
    """

    kind: Literal["regex"]
    pattern: Annotated[str, Field(max_length=10_000), OR_FROM_TASK]
    flags: tuple[Flag, ...] = ()
    must: Must = Must.MATCH
    at_least: int = Field(default=1, ge=0, description="matches, where it must match")
    at_most: int | None = Field(default=None, ge=0, description="matches, where it must match")
    seconds: float = Field(default=10.0, gt=0, le=86_400)

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        if not isinstance(pattern, FromTask):
            try:
                re.compile(pattern)
            except (re.error, OverflowError, RecursionError) as error:
                raise ValueError(f"no regular expression: {error}") from error
        return pattern

    @model_validator(mode="after")
    def _bounds(self) -> Self:
        if self.must is Must.NOT_MATCH and not self.model_fields_set.isdisjoint({"at_least", "at_most"}):
            raise ValueError("at_least and at_most are for what must match")
        if self.at_most is not None and self.at_most < self.at_least:
            raise ValueError("at_most is below at_least")
        return self

    async def judge(self, judging: Judging) -> Verdict:
        """Count the matches, apart: some patterns take years on some texts."""
        text = await self.text(judging)
        wants = self.must is Must.MATCH
        question = {
            "question": "regex",
            "text": text.decode("utf-8", "replace"),
            "pattern": self.pattern,
            "flags": [flag.value for flag in self.flags],
            "at_least": self.at_least if wants else 0,
            "at_most": self.at_most if wants else 0,
        }
        return await judged_apart(question, self.seconds)
