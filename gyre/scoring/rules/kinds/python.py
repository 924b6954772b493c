"""A Python function that judges."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from ...isolated_run import Why
from ...python_function import PythonEvaluator
from ...settings import PythonSettings, module_files
from ...workplace import Place
from ..rule import Judging, Rule
from ..verdict import BrokenRuleError, Verdict


class PythonRule(Rule):
    """Calls `function`, written module:function, with the subject, as the evaluator of kind `python` does.

    It runs apart, in the artefacts' folder, and returns a share, or a mapping or an Evaluation whose score is one. Its
    module is looked for in the rules file's folder first, never among the artefacts. An exception of it is a fault of
    the rule.
    """

    needs_copy: ClassVar[bool] = True

    kind: Literal["python"]
    function: str = Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$", description="module:function")

    def belongings(self, folder: Path) -> list[Path]:
        """The module, if it is beside the rules file."""
        return module_files(self.function, (folder,))

    async def judge(self, judging: Judging) -> Verdict:
        """Call it."""
        settings = PythonSettings(
            kind="python",
            function=self.function,
            path=(judging.rules_folder,),
            place=Place.ARTEFACTS,
            limits=judging.limits.model_copy(update={"wall_s": self.seconds}),
        )
        found = await PythonEvaluator(settings).evaluate(replace(judging.subject, folder=judging.folder))
        if found.details.get("run", {}).get("why") == Why.TIME:
            raise TimeoutError
        if not found.valid or found.score is None:
            raise BrokenRuleError(found.reason)
        if not 0 <= found.score <= 1:
            raise BrokenRuleError(f"{self.function} returned {found.score:g}; return a share from 0 to 1")
        failed = next((f"{check.name}: {check.detail}" for check in found.checks if check.passed < 1), "")
        return Verdict(found.score, found.reason or failed)
