"""Container desktops beside local ones, in one run (as root).

The engine is one of its own, on this machine; ``40 ms away`` is a container whose stream has that
round trip put in.
"""

from __future__ import annotations

import asyncio
import queue
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from legato.desktop.actions import Click
from legato.desktop.contract import DesktopFactory, DesktopOptions, Machine
from legato.desktop.docker import make_desktop as make_docker
from legato.desktop.docker.container import Container
from legato.desktop.docker.desktop import DockerProvider
from legato.desktop.docker.options import DockerOptions
from legato.desktop.guest.desktop import GuestDesktop
from legato.desktop.guest.mux import Stream
from legato.desktop.local import make_desktop as make_local
from legato.rl.driver import Driver, GroupOptions
from legato.rl.harness import make_harness
from legato.rl.pool import Pool
from legato.rl.rollout import Limits
from legato.rl.types import Sampling
from tests.bench.bench_episode import ACTIONS, Thinking, note_task
from tests.bench.bench_local import Bare, p50
from tests.desktop.docker.engines import bring_image, dockerd

ROUND_TRIP_S = 0.04
SHOTS, RESETS, BOOTS, STEPS = 60, 5, 3, 20


def boot_seconds(make: DesktopFactory, options: DesktopOptions) -> float:
    """Median seconds from nothing to a stable screen."""
    took = []
    for slot in range(BOOTS):
        desktop = make(options, slot)
        assert isinstance(desktop, GuestDesktop)
        try:
            took.append(p50(lambda _, d=desktop: d.prepare(), 1))  # type: ignore[misc]
        finally:
            desktop.close()
    return statistics.median(took)


def measure(name: str, make: DesktopFactory, options: DesktopOptions) -> None:
    desktop = make(options, 0)
    assert isinstance(desktop, GuestDesktop)
    try:
        task = Bare()
        desktop.reset(task)
        report = {
            "screenshot 1280x720, nothing new on it, p50": p50(lambda _: desktop.observe(), SHOTS),
            "screenshot 1280x720, half of it new, p50": p50(anew(task.machine, desktop), SHOTS),
            "click p50": p50(click(task.machine), SHOTS),
            "step until the screen is ready p50": p50(step(desktop), STEPS),
            "fast reset to a stable screen p50": p50(lambda _: desktop.prepare(), RESETS),
        }
    finally:
        desktop.close()
    for what, seconds in report.items():
        say(name, what, f"{seconds * 1e3:.2f} ms" if seconds < 0.2 else f"{seconds:.2f} s")


def say(name: str, what: str, value: str) -> None:
    """Local ones have their own benchmark, and bars there."""
    print(f"{name}: {what}: {value}{' (bar none)' if name == 'docker' else ''}", flush=True)


def click(machine: Machine) -> Callable[[int], object]:
    return lambda i: machine.input(Click(x=20 + 6 * i, y=300))


def step(desktop: GuestDesktop) -> Callable[[int], object]:
    def call(i: int) -> None:
        desktop.act(Click(x=20 + 6 * i, y=300))
        desktop.observe()

    return call


def anew(machine: Machine, desktop: GuestDesktop) -> Callable[[int], object]:
    """A look at a screen that a window has just covered, or left."""
    assert desktop._session is not None
    x = desktop._session.display.x

    def call(i: int) -> None:
        x.set_background((0x203040, 0xA0B0C0)[i % 2])
        desktop.observe()

    return call


async def leases(make: DesktopFactory, options: DesktopOptions) -> list[float]:
    """Seconds that rollouts waited for a clean desktop, after the first round, in order."""
    async with Pool(make, options, size=2) as pool:
        driver = Driver(
            pool,
            Thinking(),
            make_harness("qwen3_5", tokenizer=None),
            policy_model="stub",
            sampling=Sampling(),
            limits=Limits(max_steps=len(ACTIONS)),
            groups=GroupOptions(size=4),
        )
        await asyncio.gather(
            *(driver.run_group(note_task(), f"g{n}", priority=n) for n in range(2))
        )
    return sorted(pool.lease_waits[2:])


class Delayed:
    """A stream from whose other end everything comes later."""

    def __init__(self, stream: Stream, seconds: float) -> None:
        self._stream, self._seconds = stream, seconds
        self._come: queue.Queue[tuple[float, bytes]] = queue.Queue()
        self.write, self.close = stream.write, stream.close
        threading.Thread(target=self._collect, daemon=True).start()

    def read(self) -> bytes:
        due, data = self._come.get()
        time.sleep(max(0.0, due - time.monotonic()))
        return data

    def _collect(self) -> None:
        data = b"x"
        while data:
            data = self._stream.read()
            self._come.put((time.monotonic() + self._seconds, data))


class FarProvider(DockerProvider):
    def create(self) -> Container:
        container = super().create()
        container._stream = Delayed(container._stream, ROUND_TRIP_S)  # type: ignore[assignment]
        return container


def far(options: DesktopOptions) -> None:
    """What a step takes of a machine that is far away, in round trips."""
    provider = FarProvider(DockerOptions.read(options.extra))
    desktop = GuestDesktop(options, 0, provider)
    beyond = []
    try:
        desktop.reset(Bare())
        desktop.wait_after_reset()
        for i in range(STEPS):
            start = time.monotonic()
            result = desktop.act(Click(x=20 + 6 * i, y=300))
            desktop.observe()
            beyond.append(time.monotonic() - start - result.ready.seconds + ROUND_TRIP_S)
    finally:
        desktop.close()
    trips = statistics.median(beyond) / ROUND_TRIP_S
    print(f"docker: round trips of a step, 40 ms away, p50: {trips:.1f} (bar <= 2.5)")


def main() -> None:
    local = DesktopOptions()
    with (
        tempfile.TemporaryDirectory(prefix="legato-bench-") as directory,
        dockerd(Path(directory, "e")) as daemon,
    ):
        bring_image(daemon.address)
        docker = DesktopOptions(extra={"engine": daemon.address})
        for name, make, options in (("local", make_local, local), ("docker", make_docker, docker)):
            boot = boot_seconds(make, options)
            say(name, "start to a stable screen p50", f"{boot:.2f} s")
            measure(name, make, options)
            waits = asyncio.run(leases(make, options))
            mid, late = statistics.median(waits) * 1e3, waits[int(0.9 * len(waits))] * 1e3
            say(name, "next lease in a running batch p50", f"{mid:.1f} ms")
            say(name, "next lease in a running batch p90", f"{late:.1f} ms")
        far(docker)


if __name__ == "__main__":
    main()
