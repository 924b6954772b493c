"""One harness's processes: started in a session of their own, under limits, and ended as a whole.

The command waits behind a gate until its number and start time are recorded, so there is no moment at which it runs and
a driver that is killed leaves no record of it: the gate's other end closes with the driver, and the command never runs.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from gyre.errors import InputError

from .sealed import read_sealed, write_sealed

_GATE: Final = 'IFS= read -r go || exit 125; exec "$@" </dev/null'
_KIND: Final = "process"
_PROC: Final = Path("/proc")
_BOOT: Final = _PROC / "sys/kernel/random/boot_id"
_OPEN_FILES: Final = resource.getrlimit(resource.RLIMIT_NOFILE)  # before `allow_open_files`
_REAP_S: Final = 0.02
_MOST_ROUNDS: Final = 250  # 5 s: a killed process that is still there then hangs in the kernel


def allow_open_files() -> None:
    """Let this process have as many files open as the system allows: one is needed for each harness that runs."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """Of each process of a harness. None: no limit of gyre's."""

    cpu_s: int | None = None
    address_space_bytes: int | None = None
    file_bytes: int | None = None  # of each file that it writes, its output too
    open_files: int | None = None

    def impose(self, process: int) -> None:
        """Limit a process, and all that it will start."""
        kinds = {
            resource.RLIMIT_CPU: self.cpu_s,
            resource.RLIMIT_AS: self.address_space_bytes,
            resource.RLIMIT_FSIZE: self.file_bytes,
            resource.RLIMIT_NOFILE: self.open_files,
            resource.RLIMIT_CORE: 0,
        }
        for kind, most in kinds.items():
            if most is not None:
                _, hard = resource.prlimit(process, kind)
                allowed = most if hard == resource.RLIM_INFINITY else min(most, hard)
                resource.prlimit(process, kind, (allowed, allowed))
        if self.open_files is None:  # as it was for the driver: programs that use select() break beyond 1,024
            resource.prlimit(process, resource.RLIMIT_NOFILE, _OPEN_FILES)


NO_LIMITS: Final = ProcessLimits()


@dataclass(frozen=True, slots=True)
class ProcessMark:
    """A process that a later driver can tell from any other: numbers are used again, start times are not."""

    pid: int
    start_ticks: int
    boot: str

    @classmethod
    def of(cls, pid: int) -> Self:
        """Return the mark of a process that is there."""
        return cls(pid, int(_stat(pid)[19]), _boot())

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Return the mark that `write` left, None where there is none.

        Raises:
            InputError: it is damaged.
        """
        found = read_sealed(path, _KIND, "end what runs of this run, then delete the file")
        return None if found is None else cls(**found)

    def write(self, path: Path) -> None:
        """Make the mark durable.

        Raises:
            InputError: the system refuses.
        """
        write_sealed(path, _KIND, {"pid": self.pid, "start_ticks": self.start_ticks, "boot": self.boot})


class HarnessProcess:
    """A started command. Use `start`."""

    def __init__(self, process: subprocess.Popen[bytes], mark: ProcessMark) -> None:
        self.mark = mark
        self._process = process

    @classmethod
    async def start(
        cls,
        argv: Sequence[str],
        *,
        folder: Path,
        environment: Mapping[str, str],
        output: Path,
        record: Path,
        limits: ProcessLimits,
    ) -> Self:
        """Start a command in `folder`; what it prints is appended to `output`, its mark is written to `record`.

        Raises:
            OSError, InputError: the system refuses; nothing runs then.
        """
        with output.open("ab") as log:
            process = subprocess.Popen(
                ["/bin/sh", "-c", _GATE, "sh", *argv],
                cwd=folder,
                env=dict(environment),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        assert process.stdin is not None
        try:
            mark = ProcessMark.of(process.pid)
            await asyncio.to_thread(mark.write, record)
            limits.impose(process.pid)
            process.stdin.write(b"go\n")
            process.stdin.close()
        except BaseException as error:
            process.kill()
            process.wait()
            if isinstance(error, BrokenPipeError):
                raise InputError(f"{argv[0]}: was killed before it began") from error
            raise
        return cls(process, mark)

    async def wait(self) -> int:
        """Return the exit code of the command, -n where signal n ended it. Its children may still run."""
        loop, gone = asyncio.get_running_loop(), asyncio.Event()
        if self._process.poll() is None:
            descriptor = os.pidfd_open(self._process.pid)
            loop.add_reader(descriptor, gone.set)
            try:
                await gone.wait()
            finally:
                loop.remove_reader(descriptor)
                os.close(descriptor)
        return self._process.wait()

    async def ask_to_end(self, grace_s: float) -> None:
        """Ask the command and its group to end, and wait `grace_s` seconds at most; what is left is to be killed."""
        if self._process.poll() is None and grace_s > 0:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGTERM)
            with suppress(TimeoutError):
                async with asyncio.timeout(grace_s):
                    await self.wait()

    def reap(self) -> None:
        """Take the exit code of a command that was killed."""
        self._process.wait()


def end_sessions(marks: Iterable[ProcessMark]) -> int:
    """Kill what there is of the sessions of processes, until nothing is left; return how many processes it was.

    A leader may have ended; its number is not given to another process while its session has any.
    """
    boot, killed = _boot(), set[int]()
    leaders = {mark.pid: mark for mark in marks if mark.boot == boot}
    for _ in range(_MOST_ROUNDS if leaders else 0):
        found = _members(leaders)
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not found:
            break
        killed.update(found)
        time.sleep(_REAP_S)
    return len(killed)


def _members(leaders: Mapping[int, ProcessMark]) -> list[int]:
    """Return the living processes of sessions whose leader is one of `leaders`, not another of the same number."""
    found: list[tuple[int, int]] = []
    others = set()
    for name in filter(str.isdecimal, os.listdir(_PROC)):
        with suppress(OSError):  # gone
            pid, stat = int(name), _stat(int(name))
            session = int(stat[3])
            if pid in leaders and int(stat[19]) != leaders[pid].start_ticks:
                others.add(pid)
            if session in leaders and stat[0] not in "ZX":
                found.append((pid, session))
    return [pid for pid, session in found if session not in others]


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the name: state, parent, group, session, ...; 19 is the start time."""
    return _PROC.joinpath(str(pid), "stat").read_text(errors="replace").rpartition(")")[2].split()


def _boot() -> str:
    return _BOOT.read_text().strip()
