"""A socket that a supervisor holds over restarts, handed on as systemd does: clients wait instead of being refused.

Protocol: sd_listen_fds(3). LISTEN_PID is this process, LISTEN_FDS says how many descriptors there are, from 3 on.
"""

from __future__ import annotations

import os
import socket
from typing import Final

from gyre.errors import InputError

_FIRST: Final = 3


def inherited_descriptor() -> int | None:
    """Return the descriptor that was handed on to this process; None where none was. To be asked once.

    Raises:
        InputError: there are several.
    """
    given, owner = os.environ.pop("LISTEN_FDS", ""), os.environ.pop("LISTEN_PID", "")  # not for its own children
    if owner != str(os.getpid()) or given in ("", "0"):
        return None
    if given != "1":
        raise InputError(f"LISTEN_FDS is {given}: hand on one socket, that of the harnesses' side")
    return _FIRST


def listening(descriptor: int) -> socket.socket:
    """Return the socket behind an inherited descriptor.

    Raises:
        InputError: it is none that listens at a TCP address.
    """
    try:
        found = socket.socket(fileno=descriptor)
        takes = found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError as error:
        raise InputError(f"LISTEN_FDS: descriptor {descriptor} is no socket ({error.strerror})") from error
    if not takes or found.family not in (socket.AF_INET, socket.AF_INET6):
        found.detach()
        raise InputError(f"LISTEN_FDS: descriptor {descriptor} does not listen at a TCP address")
    found.set_inheritable(False)
    return found
