"""The local desktop's own costs. Run it alone: ``python tests/bench/bench_local.py``.

Memory is read from ``smaps_rollup``, which for another user's processes takes root.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path

from legato.desktop.actions import Click
from legato.desktop.contract import DesktopOptions, Machine, Score
from legato.desktop.local import LocalDesktop, check_requirements, make_desktop

SETTLE_S = 2.0
"""Between the last action and the reading of the memory."""


class Bare:
    """A task that does nothing, and lends its machine."""

    task_id = domain = "bare"
    instruction = ""
    config: dict[str, str] = {}  # noqa: RUF012 - the protocol's type
    machine: Machine

    def setup(self, machine: Machine) -> None:
        self.machine = machine

    def grade(self, machine: Machine) -> Score:
        return Score(0.0)


def p50(call: Callable[[int], object], times: int) -> float:
    """Median seconds of a call."""
    taken = []
    for i in range(times):
        start = time.perf_counter()
        call(i)
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def tree(root: int) -> list[int]:
    found = [root]
    for pid in found:
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            found += [int(child) for child in children.read_text().split()]
    return found


def pss_mib(desktop: LocalDesktop) -> float:
    """Proportional memory of all the desktop's processes, bwrap and our view of the screen too."""
    assert desktop._box is not None
    status = Path(f"/proc/{desktop._box.first_pid}/status").read_text()
    bwrap = int(status.split("PPid:\t")[1].split()[0])
    kib = 0
    for pid in tree(bwrap):
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        kib += int(rollup.split("\nPss:")[1].split()[0])
    ours = Path("/proc/self/smaps").read_text().split("memfd:screen")[1:]
    kib += sum(int(mapping.split("\nPss:")[1].split()[0]) for mapping in ours)
    return kib / 1024


def main() -> None:
    check_requirements()
    desktop = make_desktop(DesktopOptions(), 0)
    try:
        task = Bare()
        desktop.reset(task)
        desktop.observe()
        time.sleep(SETTLE_S)
        memory = pss_mib(desktop)
        shot = p50(lambda _: desktop.observe(), 200)
        click = p50(lambda i: task.machine.input(Click(x=20 + 6 * i, y=300)), 200)
        reset = p50(lambda _: desktop.prepare(), 20)
        boots: list[float] = []
        for slot in range(1, 11):
            other = make_desktop(DesktopOptions(), slot)
            try:
                boots.append(p50(lambda _, d=other: d.prepare(), 1))  # type: ignore[misc]
            finally:
                other.close()
    finally:
        desktop.close()
    print(f"local: screenshot 1280x720, not encoded, p50: {shot * 1e3:.2f} ms (bar <= 2 ms)")
    print(f"local: click p50: {click * 1e3:.2f} ms (bar <= 2 ms)")
    print(f"local: fast reset to a stable screen p50: {reset:.2f} s (bar <= 1 s)")
    print(f"local: boot to a stable screen p50: {statistics.median(boots):.2f} s")
    print(
        f"local: PSS of an idle bare 720p desktop, all processes: {memory:.1f} MiB (bar <= 60 MiB)"
    )


if __name__ == "__main__":
    main()
