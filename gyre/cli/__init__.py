"""The `gyre` command. Commands are imported only when they are asked for, so that `gyre --help` is quick."""

from __future__ import annotations

import errno
import importlib
import io
import sys
from typing import Any, Final, NoReturn

import click

from .. import __version__
from ..errors import InputError
from .interrupt import INTERRUPTED, CommandStoppedError, termination_as_interrupt

_COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "compare": ("compare", "Compare policies side by side on one workload, at equal GPUs and equal staleness."),
    "simulate": ("simulate", "Simulate one policy on one workload."),
    "run": ("run", "Train a model on tasks: real cells, harnesses, evaluator, trainer."),
    "report": ("report", "Draw the report of a results folder again."),
    "trace": ("trace", "Import, describe, fit and generate workloads."),
    "calibrate": ("calibrate", "Fit a hardware profile to a run, and say how well the simulator then tells its times."),
    "proxy": ("proxy", "Serve unmodified agent harnesses from SGLang servers, and record every token."),
    "score": ("score", "Evaluate what executions left, by a command, tests, a function, a service or rules."),
    "model": ("model", "Make, import and inspect the models that cells train and serve."),
    "samples": ("samples", "Turn recorded model calls into training samples: build, inspect, export."),
    "rules": ("rules", "Rules that score executions: check that they are stable, explain them."),
}
_BAD_INPUT: Final = 2
_NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class _Commands(click.Group):
    """A group whose commands live in modules of their own, imported on use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command = getattr(importlib.import_module(f".{_COMMANDS[cmd_name][0]}", __name__), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")  # tables have signs that an ASCII terminal lacks
        try:
            with termination_as_interrupt():
                return super().invoke(ctx)
        except InputError as error:
            _fail(str(error))
        except KeyboardInterrupt:
            _fail("interrupted", INTERRUPTED)
        except CommandStoppedError as error:
            _fail(str(error), INTERRUPTED)
        except OSError as error:
            if error.errno == errno.EPIPE:  # whoever read the output has read enough; click ends quietly
                raise
            _fail(_refused_by_system(error))


def _refused_by_system(error: OSError) -> str:
    where = error.filename if isinstance(error.filename, str) else "output"
    if error.errno in _NO_SPACE:
        return f"{where}: no space left on the disk; free some, then run it again, with --resume if the command has it"
    why = error.strerror or str(error) or type(error).__name__
    return f"{where}: refused by the system ({why}); give another path, or mend what is there"


def _fail(message: str, code: int = _BAD_INPUT) -> NoReturn:
    click.echo(f"gyre: {' '.join(message.split())}", err=True)
    sys.exit(code)


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="gyre")
def main() -> None:
    """Schedule online reinforcement learning of LLM agents, and simulate it.

    Start with `gyre compare nl2repo-122b`.
    """
    if "" not in sys.path:
        sys.path.insert(0, "")  # a user's own policy, given as module:Class, stands in the working folder
