"""A command as evaluator: its exit code is the score, or it says so in JSON."""

from __future__ import annotations

from pathlib import Path

from .evaluation import Evaluation
from .isolated_run import Run
from .process import ProcessEvaluator
from .result import evaluation_of_json, invalid
from .settings import CommandSettings, ResultFrom
from .workplace import Workplace


class CommandEvaluator(ProcessEvaluator[CommandSettings]):
    """Runs a command that judges."""

    def argv(self, place: Workplace) -> list[str]:
        """Return the command, with the paths of this evaluation filled in."""
        return [place.filled_in(word) for word in self.settings.command]

    def read(self, run: Run, place: Workplace) -> Evaluation:
        """Return what the exit code, the output or the result file says."""
        if self.settings.result is ResultFrom.EXIT_CODE:
            if run.exit_code not in self.settings.scores:
                known = ", ".join(map(str, self.settings.scores))
                return invalid(f"exit code {run.exit_code} has no score, only {known} have: {run.last_words}")
            return Evaluation(valid=True, score=self.settings.scores[run.exit_code])
        if run.exit_code != 0:
            return invalid(f"exit code {run.exit_code}, expected 0 with a result: {run.last_words}")
        if self.settings.result is ResultFrom.FILE:
            return read_result(place.result, self.settings.limits.output_bytes)
        if run.output.cut:
            return invalid(f"unusable result: it has {run.output.total:,} bytes, more than the limit")
        return evaluation_of_json(bytes(run.output.kept))


def read_result(path: Path, most_bytes: int) -> Evaluation:
    """Return the evaluation in the JSON file that an evaluator was to write."""
    if not path.is_file() or path.is_symlink():
        return invalid("it wrote no result")
    with path.open("rb") as file:
        text = file.read(most_bytes + 1)
    if len(text) > most_bytes:
        return invalid(f"unusable result: it has more than {most_bytes:,} bytes, the limit")
    return evaluation_of_json(text)
