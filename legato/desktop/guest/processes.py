"""Processes of the machine: start, reap, capture, stop and kill them.

The guest program is pid 1 of its pid namespace: it reaps every orphan, and ``kill(-1, ...)``
from it reaches each of them and nothing else. It cannot be stopped or killed from inside.
"""

from __future__ import annotations

import contextlib
import os
import platform
import resource
import select
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

CAPTURE = 2**20
"""Bytes kept of each of a command's two streams."""
TAIL = 4096
"""Bytes kept of the last output of a launched program, for its error message."""
FREEZE_S = 5.0
"""Longest that stopping every process may take, in seconds."""
ENDED = (b"Z", b"X")
"""States of a process that is over, whether or not its parent knows."""
SPARE_PROCESSES = 64
"""Left to the guest program when the agent has used up its own."""


class NotClean(RuntimeError):  # noqa: N818 - what the driver calls it
    """Something of the agent outlived the clean-up; only a new machine will do."""


@dataclass
class Output:
    """What a process wrote, read as it comes so that it never blocks on us."""

    limit: int
    keep_last: bool
    data: bytearray = field(default_factory=bytearray)

    def add(self, chunk: bytes) -> None:
        if self.keep_last:
            self.data += chunk
            del self.data[: -self.limit]
        else:
            self.data += chunk[: self.limit - len(self.data)]

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "replace")


@dataclass
class Process:
    """A child of ours."""

    pid: int
    stdout: Output
    stderr: Output
    exit_code: int | None = None
    """Negative: the signal that ended it."""
    on_exit: Callable[[], None] | None = None


class Processes:
    """All children, by pid. Single-threaded: everything happens in the selector's loop."""

    def __init__(self, selector: selectors.BaseSelector, max_processes: int) -> None:
        self._selector = selector
        self._running: dict[int, Process] = {}
        self._popen: dict[int, subprocess.Popen[bytes]] = {}
        self._limit = _bound_processes(max_processes)
        self._wakeup, wakeup_in = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wakeup_in, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        selector.register(self._wakeup, selectors.EVENT_READ, self.reap)

    def start(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: str | None = None,
        keep: Sequence[int] = (),
    ) -> Process:
        """Start a program whose output is captured from its beginning.

        It inherits the descriptors in ``keep``.
        """
        out, err = self._pipe(), self._pipe()
        try:
            popen = self._spawn(argv, env, cwd, out[1], err[1], keep)
        except BaseException:
            for fd in (*out, *err):
                os.close(fd)
            raise
        process = Process(popen.pid, Output(CAPTURE, False), Output(CAPTURE, False))
        self._adopt(process, popen)
        for (read, write), output in ((out, process.stdout), (err, process.stderr)):
            os.close(write)
            self._collect(read, output)
        return process

    def launch(self, argv: Sequence[str], env: Mapping[str, str]) -> Process:
        """Start a program that goes on by itself; the end of its output is kept."""
        return self.launch_with(lambda log: self._spawn(argv, env, env["HOME"], log, log))

    def launch_with(self, start: Callable[[int], subprocess.Popen[bytes] | int]) -> Process:
        """Like :meth:`launch`; ``start`` gets the descriptor for output and returns the pid."""
        read, write = self._pipe()
        try:
            started = start(write)
        except BaseException:
            os.close(read)
            raise
        finally:
            os.close(write)
        popen, pid = (None, started) if isinstance(started, int) else (started, started.pid)
        output = Output(TAIL, True)
        process = Process(pid, output, output)
        self._adopt(process, popen)
        self._collect(read, output)
        return process

    def get(self, pid: int) -> Process | None:
        return self._running.get(pid)

    def kill_group(self, process: Process) -> None:
        """End a process together with the group it leads."""
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return

    def reap(self) -> None:
        """Collect everything that has exited; orphans of the machine included."""
        _drain(self._wakeup)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._ended(pid, os.waitstatus_to_exitcode(status))

    def wait(self, process: Process, timeout: float) -> bool:
        """Wait for one process, reaping others meanwhile; whether it ended."""
        end = time.monotonic() + timeout
        while process.exit_code is None and (left := end - time.monotonic()) > 0:
            select.select([self._wakeup], [], [], left)
            self.reap()
        return process.exit_code is not None

    def kill_all(self, timeout: float) -> None:
        """Kill every other process of the machine and see that none is left.

        Raises :class:`NotClean` if one is still there after ``timeout`` seconds.
        """
        end = time.monotonic() + timeout
        while True:
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
            self.reap()
            left = [pid for pid in _pids() if pid != 1]
            if not left:
                break
            if time.monotonic() > end:
                raise NotClean(f"processes {left[:8]} survived SIGKILL for {timeout:g} s")
            select.select([self._wakeup], [], [], 0.02)
        for key in list(self._selector.get_map().values()):
            if isinstance(key.data, _Collector):
                key.data.close()
        self._running.clear()

    def freeze(self, keep: Sequence[int]) -> None:
        """Stop every process but those in ``keep``; none of them can undo it.

        The kernel makes ``kill(-1)`` atomic against ``fork``: no child slips away. One that is
        just sending SIGCONT itself may still wake another, so this is repeated until all are
        seen to be stopped: from then on nobody is left who could wake anybody. Raises
        ``NotClean`` if that takes longer than :data:`FREEZE_S`.
        """
        until = time.monotonic() + FREEZE_S
        while True:
            try:
                os.kill(-1, signal.SIGSTOP)
            except ProcessLookupError:
                return
            settled = min(until, time.monotonic() + 0.2)
            while running := [pid for pid in _running() if pid not in keep]:
                if time.monotonic() > settled:
                    break
                time.sleep(0.002)  # a signal takes effect when its process is next scheduled
            if not running:
                break
            if time.monotonic() > until:
                raise NotClean(f"processes {running} could not be stopped")
        for pid in keep:
            os.kill(pid, signal.SIGCONT)

    def thaw(self) -> None:
        """Let every stopped process go on."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGCONT)

    def _spawn(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: str | None,
        out: int,
        err: int,
        keep: Sequence[int] = (),
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            list(argv),
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
            pass_fds=keep,
        )

    def _adopt(self, process: Process, popen: subprocess.Popen[bytes] | None) -> None:
        self._running[process.pid] = process
        if popen is not None:
            self._popen[process.pid] = popen
        if self._limit is not None:
            # Ours is a little higher; a child that forks before this line stays below that.
            with contextlib.suppress(ProcessLookupError):  # already a zombie
                resource.prlimit(process.pid, resource.RLIMIT_NPROC, (self._limit, self._limit))

    def _ended(self, pid: int, code: int) -> None:
        popen = self._popen.pop(pid, None)
        if popen is not None:
            popen.returncode = code  # else Popen would one day wait for a reused pid
        process = self._running.get(pid)
        if process is None:
            return
        process.exit_code = code
        if process.on_exit is not None:
            process.on_exit()

    def _pipe(self) -> tuple[int, int]:
        read, write = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(read, False)
        return read, write

    def _collect(self, fd: int, output: Output) -> None:
        collector = _Collector(self._selector, fd, output)
        self._selector.register(fd, selectors.EVENT_READ, collector)

    def drain(self, process: Process) -> None:
        """Read what an ended process left in its pipes, without waiting for their end.

        A daemon it started may hold them open for ever.
        """
        for key in list(self._selector.get_map().values()):
            if isinstance(key.data, _Collector) and (
                key.data.output is process.stdout or key.data.output is process.stderr
            ):
                key.data()
                if key.data.output.limit == CAPTURE:
                    key.data.close()

    def forget(self, process: Process) -> None:
        self._running.pop(process.pid, None)


class _Collector:
    def __init__(self, selector: selectors.BaseSelector, fd: int, output: Output) -> None:
        self._selector, self._fd, self.output = selector, fd, output

    def __call__(self) -> None:
        for _ in range(32):  # bounded: an endless writer must not starve the others
            try:
                chunk = os.read(self._fd, 65536)
            except BlockingIOError:
                return
            if not chunk:
                self.close()
                return
            self.output.add(chunk)

    def close(self) -> None:
        if self._fd >= 0:
            self._selector.unregister(self._fd)
            os.close(self._fd)
            self._fd = -1


def _running() -> list[int]:
    """Every process of the namespace but ourselves that is neither stopped nor dead."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        if state_of(int(entry)) not in (*ENDED, b"T", b"t"):
            found.append(int(entry))
    return found


def state_of(pid: int) -> bytes:
    """The letter of proc(5) for what a process is doing; ``X`` also if it is there no more."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0]
    except OSError:
        return b"X"


def _bound_processes(limit: int) -> int | None:
    """Set our own limit; returns the children's, or ``None`` where a limit would do harm.

    Before Linux 5.14 ``RLIMIT_NPROC`` counted a user's processes over all namespaces, so that
    one desktop would have taken the processes of another.
    """
    release = tuple(int(part) for part in platform.release().split("-")[0].split(".")[:2])
    if release < (5, 14) or limit <= 0:
        return None
    _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard - SPARE_PROCESSES)
    ours = limit + SPARE_PROCESSES
    resource.setrlimit(resource.RLIMIT_NPROC, (ours, ours))
    return limit


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _drain(fd: int) -> None:
    try:
        while os.read(fd, 4096):
            continue
    except BlockingIOError:
        return
