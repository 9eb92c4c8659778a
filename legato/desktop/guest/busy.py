"""How much the desktop's processes work, or wait for a chance to.

The kernel tells for every thread how long it ran and how long it waited on a run queue
(``/proc/<pid>/task/<tid>/schedstat``, both in nanoseconds:
https://docs.kernel.org/scheduler/sched-stats.html). Waiting is added to it only once the thread
gets its turn, so a thread that is runnable now, or stuck reading from a disk, is asked for by its
state as well (``R`` and ``D`` in ``/proc/<pid>/task/<tid>/stat``).

Runs inside the sandbox, where ``/proc`` shows this desktop alone: standard library only.
"""

import os
import threading
import time
from collections.abc import Callable


class BusyMeter:
    """A clock that runs while the desktop's processes do. Thread-safe.

    ``ignored`` gives the pids that only serve the measurement (the X server and this program).
    """

    def __init__(self, ignored: Callable[[], frozenset[int]]) -> None:
        self._ignored = ignored
        self._lock = threading.Lock()
        self._threads: dict[int, int] = {}
        self._total_ns = 0
        self._read_ns = time.monotonic_ns()

    def seconds(self) -> float:
        """Processor seconds used or waited for so far; only differences matter, never falls."""
        with self._lock:
            now = time.monotonic_ns()
            elapsed, self._read_ns = now - self._read_ns, now
            seen: dict[int, int] = {}
            for tid, directory in self._tasks():
                try:
                    ran, waited, _slices = _read(f"{directory}/schedstat").split()
                    used = int(ran) + int(waited)
                    delta = used - self._threads.get(tid, 0)
                    if delta < elapsed and _state(f"{directory}/stat") in (b"R", b"D"):
                        delta = elapsed
                except (FileNotFoundError, ProcessLookupError):
                    continue  # it ended between being listed and being read
                seen[tid] = used
                self._total_ns += max(0, delta)
            self._threads = seen
            return self._total_ns / 1e9

    def _tasks(self) -> list[tuple[int, str]]:
        ignored = self._ignored()
        tasks = []
        for name in os.listdir("/proc"):
            if not name.isdigit() or int(name) in ignored:
                continue
            try:
                threads = os.listdir(f"/proc/{name}/task")
            except (FileNotFoundError, ProcessLookupError):
                continue
            tasks += [(int(t), f"/proc/{name}/task/{t}") for t in threads]
        return tasks


def _read(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.read(fd, 1024)
    finally:
        os.close(fd)


def _state(path: str) -> bytes:
    # The program's name, in parentheses, may itself hold spaces and parentheses.
    return _read(path).rpartition(b")")[2][1:2]
