"""How far `gyre model import` is."""

from __future__ import annotations

from rich.console import Console
from rich.progress import DownloadColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TransferSpeedColumn


class WriteProgress:
    """Bytes written, on stderr where that is a terminal."""

    def __init__(self, *, quiet: bool) -> None:
        """Show nothing where `quiet`."""
        console = Console(stderr=True)
        columns = (SpinnerColumn(), TextColumn("{task.description}"), DownloadColumn(), TransferSpeedColumn())
        hidden = quiet or not console.is_terminal
        self._progress = Progress(*columns, TimeElapsedColumn(), console=console, transient=True, disable=hidden)
        self._task = self._progress.add_task("reading", total=None)

    def __enter__(self) -> WriteProgress:
        """Show it."""
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Take it away."""
        self._progress.stop()

    def wrote(self, size: int) -> None:
        """Count `size` bytes more."""
        self._progress.update(self._task, description="written", advance=size)
