"""How long a reference episode takes: from a clean desktop to the verdict, set-up included.

``bench_suites.py [VARIANTS]`` plays so many variants of every task, by default three, one by one.
"""

from __future__ import annotations

import statistics
import sys
import time

from legato.desktop.contract import DesktopOptions
from legato.desktop.local import LocalDesktop, check_requirements, make_desktop
from legato.tasks import list_tasks, load_task
from legato.tasks.reference import SHIPPED, shipped_actions

VARIANTS = 3


def episode(desktop: LocalDesktop, name: str, seed: int) -> tuple[float, float]:
    """Seconds, and the reward."""
    task = load_task(name, seed)
    actions = shipped_actions(task)
    assert actions is not None
    desktop.prepare()
    started = time.monotonic()
    desktop.reset(task)
    desktop.wait_after_reset()
    for action in actions:
        desktop.act(action)
        desktop.observe()
    desktop.wait_before_eval()
    reward = desktop.evaluate().reward
    return time.monotonic() - started, reward


def main() -> None:
    check_requirements()
    variants = int(sys.argv[1]) if sys.argv[1:] else VARIANTS
    names = [info.name for info in list_tasks() if info.suite in SHIPPED]
    desktop = make_desktop(DesktopOptions(), 0)
    took: dict[str, list[float]] = {}
    right = 0
    try:
        for name in names:
            for seed in range(variants):
                seconds, reward = episode(desktop, name, seed)
                took.setdefault(name, []).append(seconds)
                right += reward == 1.0
    finally:
        desktop.close()
    for name, seconds in took.items():
        print(f"suites: reference episode of {name}, median: {statistics.median(seconds):.1f} s")
    every = [s for seconds in took.values() for s in seconds]
    print(
        f"suites: reference episode, median of all: {statistics.median(every):.1f} s (bar <= 6 s)"
    )
    print(f"suites: reference episodes that earn 1: {right} of {len(every)} (bar all)")


if __name__ == "__main__":
    main()
