"""A function of Python as evaluator, in a process of its own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from .command import read_result
from .evaluation import Evaluation
from .isolated_run import Run
from .process import ProcessEvaluator
from .result import invalid
from .settings import PythonSettings
from .workplace import Workplace


class PythonEvaluator(ProcessEvaluator[PythonSettings]):
    """Calls `module:function` with the subject; it returns a number, a mapping or an Evaluation, or awaits one."""

    def argv(self, place: Workplace) -> list[str]:
        """Return the command that calls the function; nothing is imported from the folder where it runs."""
        return [sys.executable, "-P", "-m", "gyre.scoring.call_function", self.settings.function]

    def environment(self, place: Workplace) -> dict[str, str]:
        """Return the variables of every evaluator's command, and where this process finds modules."""
        here = [str(Path(entry or ".").resolve()) for entry in sys.path]
        path = os.pathsep.join([*map(str, self.settings.path), *here])
        return {"PYTHONPATH": path, **super().environment(place)}

    def read(self, run: Run, place: Workplace) -> Evaluation:
        """Return what the function returned."""
        if run.exit_code != 0:
            return invalid(f"{self.settings.function} ended with exit code {run.exit_code}: {run.last_words}")
        return read_result(place.result, self.settings.limits.output_bytes)
