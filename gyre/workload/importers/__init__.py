"""Importers: one module a format, one registry, detection by content."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...errors import InputError
from ..findings import Report
from ..trace import Trace, is_trace
from ..validate import read_repaired, repair
from . import atif, azure, claude_code, gyre_run, kv_cache_tester, lengths, mooncake, recorded_parquet
from .lengths_fault import lengths_fault


@dataclass(frozen=True, slots=True)
class Importer:
    """A format that gyre reads: `detect` looks at content and never raises, `read` also says what it found amiss."""

    name: str
    describes: str
    detect: Callable[[Path], bool]
    read: Callable[[Path], tuple[Trace, Report]]


FORMATS: Final[dict[str, Importer]] = {
    importer.name: importer
    for importer in (
        Importer("kv-cache-tester", "JSON sessions with block hashes", kv_cache_tester.detect, kv_cache_tester.read),
        Importer("claude-code", "Claude Code transcripts (JSONL)", claude_code.detect, claude_code.read),
        Importer("mooncake", "Mooncake requests (JSONL)", mooncake.detect, mooncake.read),
        Importer("azure", "Azure LLM inference traces (CSV)", azure.detect, azure.read),
        Importer("atif", "Agent Trajectory Interchange Format (JSON)", atif.detect, atif.read),
        Importer(
            "recorded-parquet", "executions and calls of public traces", recorded_parquet.detect, recorded_parquet.read
        ),
        Importer("lengths", "rollout lengths: group, tokens or duration_s", lengths.detect, lengths.read),
        Importer("gyre-run", "the folder of a run by `gyre run`", gyre_run.detect, gyre_run.read),
    )
}


def import_trace(path: Path | str, format: str | None = None) -> tuple[Trace, Report]:
    """Read any known format into a valid trace, and say what was skipped, assumed and repaired.

    A trace folder is loaded as it is. `format` names an importer of `FORMATS`; None detects it by content.

    Raises:
        InputError: the path does not exist, the format is unknown or ambiguous, no usable record is left, or the result
            breaks an invariant that no rule repairs.
    """
    check_format(format)
    source = Path(path)
    if not source.exists():
        raise InputError(f"{source}: no such file or folder; check the path")
    if not source.is_file() and not source.is_dir():  # reading a pipe or a device may never end
        raise InputError(f"{source}: neither a regular file nor a folder; write the recording to a file first")
    if format is None and source.is_dir() and is_trace(source):
        return read_repaired(source)
    trace, read_report = _importer(source, format).read(source)
    trace, repairs = repair(trace)
    report = read_report + repairs
    report.raise_if_fatal(str(source))
    return trace, report


def check_format(format: str | None) -> None:
    """Check the name of a format; None, to find the format by content, is one.

    Raises:
        InputError: there is no such format.
    """
    if format is not None and format not in FORMATS:
        raise InputError(f"--format {format}: no such format; choose one of {', '.join(FORMATS)}")


def _importer(source: Path, format: str | None) -> Importer:
    if format is not None:
        return FORMATS[format]
    if gyre_run.detect(source):  # whatever transcripts its harnesses have left in it
        return FORMATS["gyre-run"]
    fitting = [importer for importer in FORMATS.values() if importer.detect(source)]
    if not fitting:
        known, fault = ", ".join(FORMATS), lengths_fault(source)
        if fault:
            raise InputError(f"{source}: its format is not recognised; {fault}")
        raise InputError(f"{source}: its format is not recognised; name it with --format (one of {known})")
    if len(fitting) > 1:
        names = ", ".join(importer.name for importer in fitting)
        raise InputError(f"{source}: could be {names}; choose one with --format")
    return fitting[0]
