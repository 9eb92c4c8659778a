"""The ready signal on local desktops: how late, how reliable, how costly.

Run it on its own machine: ``python tests/bench/bench_ready.py [launches]``. What really happened
on the screen is seen by a watcher of its own, which reads the frame buffer every 3 ms.
"""

from __future__ import annotations

import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from legato.desktop.actions import Action
from legato.desktop.contract import DesktopOptions, Ready
from legato.desktop.local import LocalDesktop, make_desktop
from legato.desktop.ready import wait_ready
from tests.desktop.pages import ROOT, SLOW_S, PagesTask

MIX = (
    (["mousepad"], "Mousepad"),
    (["pcmanfm", "/usr/share"], "Pcmanfm"),
    (["xterm"], "XTerm"),
    (["chromium", f"{ROOT}/static"], "Chromium"),
)
KEYS = ("alt+f", "Escape", "a", "Return", "alt+e", "Escape", "b", "ctrl+z", "alt+s", "Escape")
LARGE = 2000
"""Changed pixels that no caret, clock or spinner makes."""
PAGE_ROUNDS = 5


class Watcher:
    """When the screen changed, and by how many pixels."""

    def __init__(self, desktop: LocalDesktop) -> None:
        self._view = signals_of(desktop).frame()
        self.changes: list[tuple[float, int]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        before = self._view.copy()
        while not self._stop.wait(0.003):
            after = self._view.copy()
            if changed := int(np.count_nonzero(after != before)):
                self.changes.append((time.monotonic(), changed))
            before = after

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


def signals_of(desktop: LocalDesktop):
    assert desktop._session is not None
    return desktop._session.signals


@contextmanager
def watching(desktop: LocalDesktop) -> Iterator[Watcher]:
    watcher = Watcher(desktop)
    try:
        yield watcher
    finally:
        watcher.stop()


def fresh(desktop: LocalDesktop) -> PagesTask:
    task = PagesTask()
    desktop.reset(task)
    desktop.wait_after_reset()
    return task


def wait(desktop: LocalDesktop) -> Ready:
    return wait_ready(signals_of(desktop), timeout=15.0)


def keys(desktop: LocalDesktop, rounds: int) -> None:
    task = fresh(desktop)
    task.machine.launch(["mousepad"])
    wait(desktop)
    past = []
    for key in KEYS * rounds:
        with watching(desktop) as watcher:
            desktop.act(Action(action_type="key", key=key))
            ready = time.monotonic()
        if before := [at for at, _ in watcher.changes if at <= ready]:
            past.append(ready - before[-1])
    p50, p90 = statistics.median(past), statistics.quantiles(past, n=10)[-1]
    print(
        f"ready: past the last change, {len(past)} keys and menus, p50: {p50:.3f} s (bar <= 0.25 s)"
    )
    print(f"ready: past the last change p90: {p90:.3f} s")


def launches(desktop: LocalDesktop, count: int, *, awaited: bool) -> None:
    there = drawn = 0
    waits = []
    for i in range(count):
        argv, wm_class = MIX[i % len(MIX)]
        task = fresh(desktop)
        began = time.monotonic()
        with watching(desktop) as watcher:
            task.machine.launch(argv, wait_window=awaited)
            wait(desktop)
            ready = time.monotonic()
            there += any(w.wm_class == wm_class for w in task.machine.windows())
            time.sleep(1.5)
        waits.append(ready - began)
        late = [n for at, n in watcher.changes if at > ready and n > LARGE]
        drawn += not late
    name = "ready: cold launches" if awaited else "ready: cold launches by the agent itself"
    bar = f" (bar {count} of {count})" if awaited else ""
    print(f"{name}, window there when ready: {there} of {count}{bar}")
    print(f"{name}, nothing large drawn later: {drawn} of {count}")
    print(f"{name}, launch to ready p50: {statistics.median(waits):.2f} s")


def visit(desktop: LocalDesktop, page: str) -> Ready:
    desktop.act(Action(action_type="key", key="ctrl+l"))
    return desktop.act(Action(action_type="type", text=f"{ROOT}/{page}\n")).ready


def pages(desktop: LocalDesktop) -> None:
    task = fresh(desktop)
    task.machine.launch(["chromium", f"{ROOT}/static"])
    wait(desktop)
    for page, reasons in {
        "spinner": {"animated"},
        "canvas": {"animated"},
        "ball": {"animated"},
        "caret": {"idle", "animated"},
    }.items():
        results = [visit(desktop, page) for _ in range(PAGE_ROUNDS)]
        right = sum(r.reason in reasons for r in results)
        worst = max(r.seconds for r in results)
        said = "/".join(sorted({r.reason for r in results}))
        print(
            f"ready: {page} page, worst of {PAGE_ROUNDS}: {worst:.2f} s, "
            f"{right} of {PAGE_ROUNDS} {said} (bar <= 1.5 s, all with the right reason)"
        )
    for page in ("fetch", "xhr", "redirect", "frame", "worker"):
        waited = sum(
            waits_for_answer(task, lambda page=page: visit(desktop, page))
            for _ in range(PAGE_ROUNDS)
        )
        print(f"ready: {page} of {SLOW_S} s waited for: {waited} of {PAGE_ROUNDS} (bar all)")
    for page in ("long-poll", "poll", "events"):
        results = [visit(desktop, page) for _ in range(3)]
        said = ", ".join(f"{r.reason} {r.seconds:.2f}" for r in results)
        print(f"ready: {page} page, first visit, then again: {said} s")
    early = visit(desktop, "timer").seconds < SLOW_S
    print(f"ready: change by a timer alone, no request: {'missed' if early else 'waited for'}")


def waits_for_answer(task: PagesTask, go: Callable[[], object]) -> bool:
    task.server.answered.clear()
    go()
    return time.monotonic() > task.server.answered.get("slow", float("inf"))


def cold_fetch(desktop: LocalDesktop, rounds: int) -> None:
    waited = 0
    for _ in range(rounds):
        task = fresh(desktop)

        def go(task: PagesTask = task) -> None:
            task.machine.launch(["chromium", f"{ROOT}/fetch"])
            wait(desktop)

        waited += waits_for_answer(task, go)
    print(f"ready: cold Chromium on a fetching page waited for: {waited} of {rounds} (bar all)")


def cost(desktop: LocalDesktop, size: str) -> None:
    task = fresh(desktop)
    task.machine.launch(["chromium", f"{ROOT}/static"])
    wait(desktop)
    for name, page in (("idle", "static"), ("animated", "spinner")):
        visit(desktop, page)
        costs, guest = [], []
        for _ in range(20):
            work, inside = time.process_time(), guest_cpu(task)
            wait(desktop)
            costs.append((time.process_time() - work) * 1e3)
            guest.append((guest_cpu(task) - inside) * 1e3)
        print(
            f"ready: CPU per wait, {name} {size} screen, driver and guest program: "
            f"{statistics.median(costs):.1f} and {statistics.median(guest):.1f} ms"
        )


def guest_cpu(task: PagesTask) -> float:
    """Processor seconds of the guest program."""
    said = task.machine.run(["cat", "/proc/1/schedstat"]).stdout
    return int(said.split()[0]) / 1e9


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    desktop = make_desktop(DesktopOptions(), 0)
    try:
        keys(desktop, 4)
        launches(desktop, count, awaited=True)
        launches(desktop, count, awaited=False)
        pages(desktop)
        cold_fetch(desktop, max(1, count // 4))
        cost(desktop, "1280x720")
    finally:
        desktop.close()
    large = make_desktop(DesktopOptions(width=1920, height=1080), 1)
    try:
        cost(large, "1920x1080")
    finally:
        large.close()


if __name__ == "__main__":
    main()
