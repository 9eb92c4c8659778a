"""The driver's handle on its warden: one per process, started with the first desktop."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
from pathlib import Path

from legato.desktop import rundir
from legato.desktop.guest import bundle
from legato.desktop.local import warden
from legato.errors import EnvFailure

PYTHON = "/usr/bin/python3"
"""The system's Python, which the sandboxes need anyway; small, and there for every user."""
STOP_S = 30.0


class Keeper:
    """A running warden and the run directory it guards."""

    def __init__(self) -> None:
        rundir.sweep()
        self.base, lock = rundir.create()
        self._lock = threading.Lock()
        self._stages: dict[Path | None, Path] = {}
        self._numbers = itertools.count(1)
        self._users = 0
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            fds = (theirs.fileno(), lock)
            numbers = [str(fd) for fd in fds]
            self._process = subprocess.Popen(
                [PYTHON, "-I", "-S", warden.__file__, *numbers, str(os.getpid()), str(self.base)],
                pass_fds=fds,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
            )
        except BaseException:
            ours.close()
            shutil.rmtree(self.base, ignore_errors=True)
            raise
        finally:
            theirs.close()
            os.close(lock)
        self._control = ours

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def stage(self, home: Path | None) -> Path:
        """The staged guest program with this template home; made once."""
        with self._lock:
            if home not in self._stages:
                directory = self.base / f"guest{len(self._stages)}"
                try:
                    bundle.stage(directory, home=home)
                except OSError as e:
                    raise EnvFailure(f"could not stage the guest program: {e}") from e
                self._stages[home] = directory
            return self._stages[home]

    def directory(self) -> tuple[int, Path]:
        """A new number and an empty private directory for one sandbox."""
        number = next(self._numbers)
        directory = self.base / str(number)
        directory.mkdir(0o700)
        return number, directory

    def start(self, argv: list[str], uid: int, fds: tuple[int, int, int]) -> None:
        """Have the warden run ``argv``; see its docstring for the descriptors."""
        order = json.dumps({"argv": argv, "uid": uid, "gid": uid}).encode()
        try:
            socket.send_fds(self._control, [order], fds)
        except OSError as e:
            raise EnvFailure(f"the warden of the local desktops is gone: {e}") from e

    def wake(self) -> None:
        """Let a warden that somebody stopped go on: it has sandboxes to end."""
        self._process.send_signal(signal.SIGCONT)

    def _stop(self) -> None:
        self.wake()
        # shutdown, not only close: a fork of this process may hold a copy.
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)
        self._control.close()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self.base, ignore_errors=True)


_lock = threading.Lock()
_current: tuple[int, Keeper] | None = None
"""With the pid it belongs to: a forked child must not speak to its parent's warden."""


def acquire() -> Keeper:
    """The keeper of this process; give it back with :func:`release`."""
    global _current
    with _lock:
        if _current is None or _current[0] != os.getpid() or not _current[1].alive:
            _current = os.getpid(), Keeper()
        _current[1]._users += 1
        return _current[1]


def release(keeper: Keeper) -> None:
    """The last release ends the warden and removes the run directory."""
    global _current
    with _lock:
        keeper._users -= 1
        if keeper._users > 0:
            return
        if _current is not None and _current[1] is keeper:
            _current = None
    keeper._stop()
