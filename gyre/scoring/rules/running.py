"""Processes that rules run, within what a rules file allows them."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..isolated import run_isolated
from ..isolated_run import Run
from ..limits import Limits


async def run_for_rule(
    argv: Sequence[str],
    *,
    folder: Path,
    seconds: float,
    limits: Limits,
    stdin: bytes | Path = b"",
    environment: Mapping[str, str] | None = None,
) -> Run:
    """Run a command in `folder` for `seconds` at most, with a HOME and a TMPDIR of its own.

    Raises:
        OSError: the system has no process, file or space left, or `folder` is not there.
        TimeoutError: it took too long.
    """
    with tempfile.TemporaryDirectory(prefix="gyre-rule-", ignore_cleanup_errors=True) as scratch:
        given = stdin if isinstance(stdin, Path) else Path(scratch, "stdin")
        if isinstance(stdin, bytes):
            given.write_bytes(stdin)
        own = limits.model_copy(update={"wall_s": seconds})
        run = await run_isolated(argv, folder=folder, scratch=Path(scratch), limits=own, env=environment, stdin=given)
    if run.out_of_time:
        raise TimeoutError
    return run
