"""Desktops in sandboxes, through doubles of Daytona and E2B on the loopback.

The providers' own packages, 40 ms of injected latency for a round trip; how long a real provider
takes to start a sandbox is not in these figures.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from legato.desktop import image
from legato.desktop.actions import Click
from legato.desktop.contract import DesktopOptions
from legato.desktop.sandboxes import desktop, providers
from legato.desktop.sandboxes.desktop import SandboxDesktop
from tests.desktop.sandboxes.conftest import DOUBLES, KEYS
from tests.desktop.sandboxes.double import Provider

LATENCY_S = 0.04
COUNTING_S = 1.0
"""Latency with which round trips are counted: far above what else a step takes."""
STEPS = 10
RESETS = 4


def seconds(call: Callable[[int], object], times: int) -> list[float]:
    taken = []
    for i in range(times):
        start = time.perf_counter()
        call(i)
        taken.append(time.perf_counter() - start)
    return taken


def step(made: SandboxDesktop, i: int) -> None:
    made.act(Click(x=200 + 20 * (i % 10), y=200))
    made.observe()


def round_trips(double: Provider, call: Callable[[int], object]) -> float:
    """What a call takes longer by when they take long, over how long they take.

    Of the least of several, since the machine's other work only ever adds.
    """
    double.latency = 0.0
    near = min(seconds(call, STEPS))
    double.latency = COUNTING_S
    far = min(seconds(call, STEPS))
    double.latency = LATENCY_S
    return (far - near) / COUNTING_S


def figures(name: str, double: Provider) -> None:
    what, bar = f"sandbox {name}, {LATENCY_S * 1000:.0f} ms away", "bar none"
    made = providers.make_desktop(name, DesktopOptions(), 0)
    double.latency = LATENCY_S
    try:
        (first,) = seconds(lambda _: made.prepare(), 1)
        print(f"{what}: first lease, new sandbox: {first:.2f} s ({bar})")
        again = statistics.median(seconds(lambda _: made.prepare(), RESETS))
        print(f"{what}: lease by fast reset in the kept sandbox p50: {again:.2f} s ({bar})")
        made.act(Click(x=640, y=360))
        # After a wait the screen is known already; this one asks.
        look = round_trips(double, lambda _: made._session and made._session.display.screenshot())
        print(f"{what}: screenshot, round trips: {look:.1f} (bar <= 1)")
        steps = round_trips(double, lambda i: step(made, i))
        print(f"{what}: click, wait and screenshot, round trips: {steps:.1f} (bar <= 2)")
        taken = statistics.median(seconds(lambda i: step(made, i), STEPS))
        print(f"{what}: click, wait and screenshot p50: {taken:.2f} s ({bar})")
    finally:
        made.close()


def main() -> None:
    for name, double_of in DOUBLES.items():
        with double_of(KEYS[name]) as double:
            os.environ.update(double.environment())
            desktop.forget_checks()
            double.images.add(image.plain_name())
            figures(name, double)


if __name__ == "__main__":
    main()
