"""Starts the guest program as its command line says: out of the agent's reach, and then serving."""

from __future__ import annotations

import argparse
import ctypes
import os
import resource
import socket

from . import files, session
from .mux import Pipes
from .program import Guest

OPEN_FILES = 8192
"""Of each program of a desktop: some walk all that they may open, and hosts may set no bound."""


def _bound() -> None:
    """No core dumps, and :data:`OPEN_FILES`, for this program and all that it starts."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))


def _hide_from_agent() -> None:
    """Deny debugging and ``/proc`` access by the agent, who has the same user id.

    ``prctl(PR_SET_DUMPABLE, 0)``, number from ``linux/prctl.h``.
    """
    if ctypes.CDLL(None, use_errno=True).prctl(4, 0, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_DUMPABLE)")


def main() -> None:
    parser = argparse.ArgumentParser()
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--listen", metavar="PATH", help="make the driver's socket here")
    where.add_argument("--listen-fd", type=int, help="or use this one")
    where.add_argument(
        "--stdio", action="store_true", help="or the driver is at standard input and output"
    )
    parser.add_argument("--owner-fd", type=int, help="exit when the other end is closed")
    parser.add_argument("--home", default="/home/user")
    parser.add_argument("--runtime", default="/run/user/1000")
    parser.add_argument("--max-processes", type=int, default=0, help="0: no limit of ours")
    options = parser.parse_args()
    with open("/proc/self/oom_score_adj", "w") as f:
        f.write("500")  # when memory runs out a desktop goes before the driver does
    _bound()
    _hide_from_agent()
    os.makedirs(session.PRIVATE, mode=0o700, exist_ok=True)
    guest = Guest(options.home, options.runtime, options.max_processes)
    files.fill(options.home, str(session.STAGE / "home"))
    if options.stdio:
        guest.loop.join(_take_stdio(), guest.open_channel)
    else:
        guest.loop.listen(_listener(options.listen, options.listen_fd), options.owner_fd)
        if options.owner_fd is not None:
            os.set_inheritable(options.owner_fd, False)
    guest.loop.serve()


def _listener(path: str | None, fd: int) -> socket.socket:
    if path is None:
        os.set_inheritable(fd, False)
        return socket.socket(fileno=fd)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen(8)
    return listener


def _take_stdio() -> Pipes:
    """Standard input and output for the driver alone: nothing else may read or write there."""
    stream = Pipes(os.dup(0), os.dup(1))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return stream
