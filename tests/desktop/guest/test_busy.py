"""The clock of work and waiting, on real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from legato.desktop.guest.busy import BusyMeter


@pytest.fixture
def worker() -> Iterator[subprocess.Popen[bytes]]:
    """A program that never rests."""
    process = subprocess.Popen(
        [sys.executable, "-c", "print(flush=True)\nwhile True: pass"], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.communicate()


def only(pid: int) -> BusyMeter:
    return BusyMeter(lambda: frozenset(int(p) for p in os.listdir("/proc") if p.isdigit()) - {pid})


def test_work_runs_the_clock_and_rest_stops_it(worker: subprocess.Popen[bytes]) -> None:
    meter = only(worker.pid)
    first, began = meter.seconds(), time.monotonic()
    time.sleep(0.3)
    took = time.monotonic() - began
    # On a loaded machine it waits for its turn; then its waiting counts.
    assert meter.seconds() - first >= 0.8 * took
    worker.send_signal(signal.SIGSTOP)
    while _state(worker.pid) != "T":
        time.sleep(0.005)
    stopped = meter.seconds()
    time.sleep(0.2)
    assert meter.seconds() == stopped


def test_ignored_processes_do_not_count(worker: subprocess.Popen[bytes]) -> None:
    meter = BusyMeter(lambda: frozenset(int(p) for p in os.listdir("/proc") if p.isdigit()))
    assert meter.seconds() == 0.0
    time.sleep(0.1)
    assert meter.seconds() == 0.0


def test_it_does_not_fall_when_a_thread_ends() -> None:
    meter = only(os.getpid())
    done = threading.Event()
    thread = threading.Thread(target=_spin, args=(done,))
    thread.start()
    time.sleep(0.1)
    before = meter.seconds()
    done.set()
    thread.join()
    assert meter.seconds() >= before


def _spin(done: threading.Event) -> None:
    while not done.is_set():
        pass


def _state(pid: int) -> str:
    with open(f"/proc/{pid}/stat") as f:
        return f.read().rpartition(")")[2].split()[0]
