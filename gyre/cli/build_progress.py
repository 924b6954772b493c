"""How far `gyre samples build` is."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from .interrupt import CommandStoppedError, Interrupt


class BuildProgress:
    """A bar on stderr, where that is a terminal; the place where a build hears that it shall stop."""

    def __init__(self, interrupt: Interrupt, *, quiet: bool) -> None:
        """Show nothing where `quiet`."""
        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[at]}"), TimeElapsedColumn())
        self._progress = Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal)
        self._interrupt = interrupt
        self._task = self._progress.add_task("", total=None, at="")

    def __enter__(self) -> BuildProgress:
        """Show it."""
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Take it away."""
        self._progress.stop()

    def read(self, lines: int) -> None:
        """Say how many lines are read.

        Raises:
            CommandStoppedError: the user asked to stop.
        """
        self._show("lines read", f"{lines:,}", lines, None)

    def built(self, done: int, of: int) -> None:
        """Say how many executions are built.

        Raises:
            CommandStoppedError: the user asked to stop.
        """
        self._show("executions", f"{done:,}/{of:,}", done, of)

    def heed(self) -> None:
        """Raise CommandStoppedError if the user asked to stop."""
        if self._interrupt.asked:
            raise CommandStoppedError

    def _show(self, what: str, at: str, done: int, of: int | None) -> None:
        self._progress.update(self._task, description=what, at=at, completed=done, total=of)
        self.heed()
