"""A command that is run in the artefacts' folder: its exit code, and what it prints."""

from __future__ import annotations

import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import BeforeValidator, Field, field_validator

from ...isolated_run import Run, Why
from ..rule import Judging, Rule
from ..running import run_for_rule
from ..task_value import TaskText
from ..verdict import BrokenRuleError, FailedCheckError, Verdict

RULES_FOLDER: Final = "{rules}"  # in a command: the folder of the rules file
_MOST_SHOWN: Final = 100  # characters of what was printed


def _split(value: Any) -> Any:
    return shlex.split(value) if isinstance(value, str) else value


class CommandRule(Rule):
    """Passes if the command ends with one of the exit codes and, where that is asked, prints what it should."""

    needs_copy: ClassVar[bool] = True

    kind: Literal["command"]
    command: Annotated[tuple[TaskText, ...], BeforeValidator(_split), Field(min_length=1)]
    exit_code: int | tuple[int, ...] = 0
    stdout: TaskText | None = Field(default=None, description="what it prints; blanks at ends of lines do not count")
    stdin: TaskText | None = Field(default=None, description="what it reads; left out: the subject, as JSON")

    @field_validator("command")
    @classmethod
    def _has_a_program(cls, command: tuple[str, ...]) -> tuple[str, ...]:
        if command[0] == "":
            raise ValueError("names no program")
        return command

    def belongings(self, folder: Path) -> list[Path]:
        """What its words name below the folder of the rules file."""
        words = (word.replace(RULES_FOLDER, str(folder)) for word in self.command if isinstance(word, str))
        return [path for path in map(Path, words) if path.is_relative_to(folder) and path.exists()]

    async def judge(self, judging: Judging) -> Verdict:
        """Run the command and look at what came of it."""
        run = await self._run(judging, judging.folder)
        whole = run.why is Why.EXITED and not run.output.cut
        output = bytes(run.output.kept).decode("utf-8", "replace")
        verdict = Verdict(1.0, output=output if whole else None)
        wanted = (self.exit_code,) if isinstance(self.exit_code, int) else self.exit_code
        if run.why is not Why.EXITED or run.exit_code not in wanted:
            return replace(verdict, passed=0.0, detail=_ended(run))
        if self.stdout is not None and (run.output.cut or _trimmed(output) != _trimmed(self.stdout)):
            said = f"printed {output[:_MOST_SHOWN]!r} in place of {self.stdout[:_MOST_SHOWN]!r}"
            return replace(verdict, passed=0.0, detail=said)
        return verdict

    async def _run(self, judging: Judging, folder: Path) -> Run:
        """Run the command.

        Raises:
            BrokenRuleError: there is no such program on this machine.
            FailedCheckError: the program was to be one of the artefacts, and is not there or cannot be run.
        """
        program, *arguments = (
            judging.place.filled_in(word).replace(RULES_FOLDER, str(judging.rules_folder)) for word in self.command
        )
        ours = "/" not in program or program.startswith("/")
        found = shutil.which(program if ours else folder / program)
        if found is None and ours:
            raise BrokenRuleError(f"command not found: {program}")
        if found is None:
            raise FailedCheckError(f"{program}: no such program among the artefacts")
        run = await run_for_rule(
            [str(found), *arguments],
            folder=folder,
            seconds=self.seconds,
            limits=judging.limits,
            stdin=judging.place.subject if self.stdin is None else self.stdin.encode(),
            environment={"PYTHONDONTWRITEBYTECODE": "1", **judging.place.environment},
        )
        if run.why is Why.NOT_STARTED:
            raise (BrokenRuleError if ours else FailedCheckError)(f"{program}: {run.failure}")
        return run


def _ended(run: Run) -> str:
    return run.failure or f"exit code {run.exit_code}: {run.last_words}"


def _trimmed(text: str) -> list[str]:
    lines = [line.rstrip() for line in text.splitlines()]
    while lines and not lines[-1]:
        lines.pop()
    return lines
