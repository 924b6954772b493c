"""The parent of an evaluator's processes: starts one command under limits, and lets nothing of it outlive itself.

`gyre.scoring.isolated` runs this file as a program, by its path and with nothing but the standard library. It gets an
order as one JSON line on a socket and answers with one JSON object, its report. When the socket closes, because whoever
asked for the run has had enough or is dead, the command is killed.

On Linux it is the subreaper of all that the command starts: a process whose parent ends becomes this one's child, also
if it has left the command's process group and session. So killing its children, and theirs when they arrive, until the
system says that there are none ends everything. Elsewhere only the process group is killed.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import shutil
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NoReturn

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_LOOK_EVERY_S: Final = 0.1  # at memory and the number of processes
_STUCK_S: Final = 5.0  # a killed process that is still there then hangs in the kernel
_NOT_STARTED: Final = 127
_PAGE: Final = resource.getpagesize()
_LINUX: Final = sys.platform == "linux"
_PROC: Final = Path("/proc")


class Confinement:
    """One command, from its start to the end of the last of its processes."""

    def __init__(self, order: dict[str, Any], control: socket.socket) -> None:
        self._order = order
        self._limits: dict[str, Any] = order["limits"]
        self._control = control
        self._woken, self._waker = socket.socketpair()
        self._waker.setblocking(False)
        self._main = 0
        self._status: int | None = None  # of the command, as wait gives it
        self._cpu_s = 0.0
        self._most_memory = 0
        self._left = 0
        self._stuck = False

    def run(self) -> dict[str, Any]:
        """Run the command; return the report."""
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        _control_process(_PR_SET_CHILD_SUBREAPER, 1)
        begun = time.monotonic()
        refused = self._start()
        _let_go_of_streams()
        why = "not_started" if refused else self._watch(begun)
        self._end_all()
        return {
            "why": why,
            "refused": refused,
            "exit_code": None if refused or self._status is None else os.waitstatus_to_exitcode(self._status),
            "seconds": time.monotonic() - begun,
            "cpu_s": self._cpu_s,
            "memory_bytes": self._most_memory,
            "left": self._left,
            "stuck": self._stuck,
        }

    def _start(self) -> str:
        """Start the command in a session of its own; return why the system refused, nothing where it did not."""
        told, tell = os.pipe()  # closed by exec, so that its end says that the command runs
        self._main = os.fork()
        if self._main == 0:
            _become(self._order, self._limits, tell)
        os.close(tell)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # the command may signal its parent; only the socket ends it
        with os.fdopen(told, "rb") as pipe:
            return pipe.read().decode(errors="replace")

    def _watch(self, begun: float) -> str:
        """Wait for the command's end, or for a reason to end it; return which."""
        why, deadline = "exited", begun + self._limits["wall_s"]
        while not self._has_ended():
            now = time.monotonic()
            if now >= deadline:
                if why == "time":  # it was asked to end, and has had its grace
                    return why
                why, deadline = "time", now + self._limits["grace_s"]
                self._signal_group(signal.SIGTERM)
                continue
            if excess := self._excess():
                return excess
            ready, _, _ = select.select([self._control, self._woken], [], [], min(_LOOK_EVERY_S, deadline - now))
            if self._control in ready:  # nothing is ever sent: it was closed
                return "stopped"
            if self._woken in ready:
                self._woken.recv(4096)
        return why

    def _has_ended(self) -> bool:
        """Whether the command has ended; on Linux it is not reaped, so that its number and its group's stay its own."""
        if not _LINUX:
            return not self._reap(self._main)
        for child in _children(os.getpid()):
            if child != self._main:
                self._reap(child)
        with suppress(ChildProcessError):
            return os.waitid(os.P_PID, self._main, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        return True

    def _excess(self) -> str:
        """Which limit on all processes together is exceeded; nothing where none is."""
        if not _LINUX:
            return ""
        processes = _descendants(os.getpid())
        if len(processes) > self._limits["processes"]:
            return "processes"
        resident = sum(map(_resident, processes))
        if resident > self._limits["memory_bytes"]:
            resident = sum(map(_proportional, processes))  # shared pages were counted for each
        self._most_memory = max(self._most_memory, resident)
        return "memory" if resident > self._limits["memory_bytes"] else ""

    def _signal_group(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._main, number)

    def _end_all(self) -> None:
        """Kill whatever is left, and reap it."""
        give_up = time.monotonic() + _STUCK_S
        ended = set()
        self._signal_group(signal.SIGKILL)  # all at once: none of the group can fork past it
        while not self._stuck:
            # Only children are killed, whose numbers cannot be another's before they are reaped here.
            for child in _children(os.getpid()):
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(child, signal.SIGKILL)
                    if child != self._main:
                        ended.add(child)
            if not self._reap(-1):
                break
            self._stuck = time.monotonic() > give_up
            time.sleep(0.002)
        self._left = len(ended)

    def _reap(self, which: int) -> bool:
        """Reap children that have ended; return whether there are others."""
        with suppress(ChildProcessError):
            while True:
                child, status, usage = os.wait4(which, os.WNOHANG)
                if child == 0:
                    return True
                self._cpu_s += usage.ru_utime + usage.ru_stime
                if child == self._main:
                    self._status = status
        return False


def _become(order: dict[str, Any], limits: dict[str, Any], tell: int) -> NoReturn:
    """Turn this new process into the command."""
    try:
        os.setsid()
        _control_process(_PR_SET_PDEATHSIG, signal.SIGKILL)
        _limit(limits)
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD):  # Python ignores the first two
            signal.signal(number, signal.SIG_DFL)
        os.execvpe(order["argv"][0], order["argv"], order["env"])
    except (OSError, ValueError) as error:
        os.write(tell, f"{getattr(error, 'strerror', None) or error}".encode())
    finally:
        os._exit(_NOT_STARTED)


def _limit(limits: dict[str, Any]) -> None:
    kinds = {
        resource.RLIMIT_CPU: limits["cpu_s"],
        resource.RLIMIT_AS: limits["address_space_bytes"],
        resource.RLIMIT_FSIZE: limits["file_bytes"],
        resource.RLIMIT_NOFILE: limits["open_files"],
        resource.RLIMIT_CORE: 0,
    }
    for kind, most in kinds.items():
        if most is not None:
            _, hard = resource.getrlimit(kind)
            # SIGXCPU at the soft limit can be handled; the hard one, a second later, cannot.
            wanted = (most, most + 1 if kind == resource.RLIMIT_CPU else most)
            resource.setrlimit(
                kind, wanted if hard == resource.RLIM_INFINITY else (min(most, hard), min(wanted[1], hard))
            )


def _control_process(option: int, value: int) -> None:
    if _LINUX:
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _let_go_of_streams() -> None:
    """The command's streams are its own: when it closes them, whoever reads shall see the end."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    os.close(nothing)


def _children(process: int) -> list[int]:
    """Processes whose parent is `process`; some may be missing while others come and go."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{process}/task"):
            found += map(int, _PROC.joinpath(str(process), "task", thread, "children").read_text().split())
    except OSError:
        if _LINUX and not Path("/proc/self/task", str(os.getpid()), "children").exists():
            return _children_by_search(process)  # a kernel without those files
    return found


def _children_by_search(process: int) -> list[int]:
    found = []
    for name in filter(str.isdecimal, os.listdir(_PROC)):
        with suppress(OSError):
            stat = _PROC.joinpath(name, "stat").read_text(errors="replace")
            if int(stat.rpartition(")")[2].split()[1]) == process:
                found.append(int(name))
    return found


def _descendants(process: int) -> list[int]:
    found = _children(process)
    for child in found:  # grows as it is walked
        found += _children(child)
    return found


def _resident(process: int) -> int:
    """Bytes of memory that a process has, pages that it shares with others counted in full."""
    with suppress(OSError):
        return int(_PROC.joinpath(str(process), "statm").read_text().split()[1]) * _PAGE
    return 0


def _proportional(process: int) -> int:
    """Bytes of memory that a process has, of each shared page its share."""
    with suppress(OSError):
        for line in _PROC.joinpath(str(process), "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return _resident(process)


def main() -> None:
    """Take the order from the socket whose number is the argument, carry it out, and report."""
    with socket.socket(fileno=int(sys.argv[1])) as control:
        control.set_inheritable(False)
        with control.makefile("rb") as orders:
            line = orders.readline()
        if not line.endswith(b"\n"):
            return  # whoever asked has ended
        order = json.loads(line)
        report = Confinement(order, control).run()
        with suppress(OSError):
            control.sendall(json.dumps(report).encode())
        if report["why"] == "stopped" and order["scratch"]:
            shutil.rmtree(order["scratch"], ignore_errors=True)  # nobody else may be there to do it


if __name__ == "__main__":
    main()
