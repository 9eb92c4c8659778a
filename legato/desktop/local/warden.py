"""The warden: one small process per driver that owns every sandbox and outlives the driver.

It exists because a driver can die at any moment, by SIGKILL too, and because bwrap's
``--die-with-parent`` follows the *thread* that forked it: a driver's worker threads come and go,
the warden has one for life. It runs in a session of its own, so that Ctrl-C does not reach it.

* To start a sandbox the driver sends one packet on the control socket: JSON with ``argv``,
  ``uid`` and ``gid``, and the descriptors *lifeline*, *listener* and *log*.
* Each sandbox then lives as long as its lifeline: the driver shuts its end down to have the
  sandbox killed; the warden closes its own once nothing of the sandbox is left. Before, it
  writes one JSON line ``{"pid": ...}`` with the host pid of the sandbox's first process.
* When the driver exits or closes the control socket, every sandbox is killed, the run directory
  is removed, and the warden exits. If the warden dies, the kernel kills the sandboxes.

Standard library only; run by the system's Python as a script.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import signal
import socket
import sys
import time
from dataclasses import dataclass
from typing import Any

LISTEN_FD = 3
OWNER_FD = 4
INFO_FD = 5
"""Where a sandbox's command finds listening socket, owner pipe and bwrap's ``--info-fd``."""

MAX_PACKET = 2**18
STOP_S = 20.0


@dataclass
class Sandbox:
    lifeline: socket.socket
    bwrap: int
    """Pid of our child, bwrap's outer process; it ends after everything inside has."""
    owner: int
    """Write end of the pipe whose closing makes the guest program exit."""
    info: int
    """Read end of bwrap's info pipe; -1 once read."""
    first: int = -1
    """pidfd of the first process inside, whose death takes the pid namespace along."""
    said: bytes = b""
    dying: bool = False


class Warden:
    def __init__(self, control: socket.socket, driver: int) -> None:
        self._control = control
        self._sandboxes: dict[int, Sandbox] = {}
        self._selector = selectors.DefaultSelector()
        self._ended = False
        self._wakeup, wakeup_in = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wakeup_in, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: self._end())
        for ignored in (signal.SIGINT, signal.SIGHUP):
            signal.signal(ignored, signal.SIG_IGN)
        watched = (
            (control, self._command),
            (driver, self._end),
            (self._wakeup, self._reap),
        )
        for source, action in watched:
            self._selector.register(source, selectors.EVENT_READ, action)

    def run(self) -> None:
        while not self._ended:
            self._turn(None)
        self._selector.unregister(self._control)
        for sandbox in self._sandboxes.values():
            self._kill(sandbox)
        deadline = time.monotonic() + STOP_S
        while self._sandboxes and (left := deadline - time.monotonic()) > 0:
            self._turn(left)

    def _turn(self, timeout: float | None) -> None:
        for key, _ in self._selector.select(timeout):
            # An earlier one of this round may have closed it.
            if self._selector.get_map().get(key.fd) is key:
                key.data()

    def _end(self) -> None:
        self._ended = True

    def _command(self) -> None:
        packet, fds, _, _ = socket.recv_fds(self._control, MAX_PACKET, 3)
        if not packet:
            self._end()
            return
        order = json.loads(packet)
        lifeline_fd, listener, log = fds
        lifeline = socket.socket(fileno=lifeline_fd)
        info, info_in = os.pipe2(os.O_CLOEXEC)
        owner_out, owner = os.pipe2(os.O_CLOEXEC)
        pid = os.fork()
        if pid == 0:
            _become(order, log, (listener, owner_out, info_in))
        for fd in (listener, log, info_in, owner_out):
            os.close(fd)
        sandbox = Sandbox(lifeline, pid, owner, info)
        self._sandboxes[pid] = sandbox
        self._selector.register(info, selectors.EVENT_READ, lambda: self._read_info(sandbox))
        self._selector.register(lifeline, selectors.EVENT_READ, lambda: self._kill(sandbox))

    def _read_info(self, sandbox: Sandbox) -> None:
        chunk = os.read(sandbox.info, 4096)
        sandbox.said += chunk
        try:
            pid = int(json.loads(sandbox.said)["child-pid"])
        except ValueError:
            if not chunk:
                self._close_info(sandbox)  # it failed to start; its end tells the driver
            return
        self._close_info(sandbox)
        try:
            sandbox.first = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        if sandbox.dying:
            self._kill_first(sandbox)
        with contextlib.suppress(OSError):
            sandbox.lifeline.send(json.dumps({"pid": pid}).encode() + b"\n")

    def _kill(self, sandbox: Sandbox) -> None:
        """Whatever arrives on a lifeline means the same: it was let go."""
        if sandbox.dying:
            return
        sandbox.dying = True
        self._selector.unregister(sandbox.lifeline)
        # Without its outer process bwrap's inner one waits for ever to be told its user id. So not
        # that one: soon either the inner one is known, or bwrap has ended by itself.
        if sandbox.first >= 0:
            self._kill_first(sandbox)

    def _kill_first(self, sandbox: Sandbox) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(sandbox.first, signal.SIGKILL)

    def _reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wakeup, 4096)
        for pid in list(self._sandboxes):
            if os.waitpid(pid, os.WNOHANG)[0] == pid:
                self._bury(self._sandboxes.pop(pid))

    def _close_info(self, sandbox: Sandbox) -> None:
        if sandbox.info >= 0:
            self._selector.unregister(sandbox.info)
            os.close(sandbox.info)
            sandbox.info = -1

    def _bury(self, sandbox: Sandbox) -> None:
        self._close_info(sandbox)
        if not sandbox.dying:
            self._selector.unregister(sandbox.lifeline)
        os.close(sandbox.owner)
        if sandbox.first >= 0:
            # bwrap itself may have been killed: then its child dies on its own a little later.
            with selectors.DefaultSelector() as death:
                death.register(sandbox.first, selectors.EVENT_READ)
                death.select(STOP_S)
            os.close(sandbox.first)
        sandbox.lifeline.close()


def _become(order: dict[str, Any], log: int, fds: tuple[int, int, int]) -> None:
    """In the forked child: turn into bwrap. Never returns."""
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDONLY)
        # First out of the way, so that placing one does not overwrite another.
        high = [os.dup(fd) for fd in (null, log, log, *fds)]
        while min(high) <= INFO_FD:
            high = [os.dup(fd) for fd in high]
        for target, fd in enumerate(high):
            os.dup2(fd, target)
        os.closerange(INFO_FD + 1, max(high) + 1)
        if os.getuid() == 0:
            os.setgroups([])
            gid, uid = order["gid"], order["uid"]
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
        signal.set_wakeup_fd(-1)
        for ignored in (signal.SIGINT, signal.SIGHUP):
            signal.signal(ignored, signal.SIG_DFL)
        argv = order["argv"]
        os.execv(argv[0], argv)
    except BaseException as e:
        os.write(2, f"could not start the sandbox: {e}\n".encode())
    finally:
        os._exit(127)


def main() -> None:
    control_fd, _lock_fd, driver_pid, base = sys.argv[1:5]
    try:
        driver = os.pidfd_open(int(driver_pid))
    except ProcessLookupError:
        shutil.rmtree(base, ignore_errors=True)
        return
    os.set_inheritable(int(control_fd), False)
    os.set_inheritable(int(_lock_fd), False)
    Warden(socket.socket(fileno=int(control_fd)), driver).run()
    shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    main()
