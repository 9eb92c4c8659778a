"""What the driver itself costs: CPU per step under an instant policy, on fake desktops.

Drawing and PNG encoding stand in for work that a real run does elsewhere or in any case; both are
timed by the CPU clock of the thread that does them and taken off the process's total.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import time
from collections.abc import Callable
from typing import Any

from legato.desktop.actions import Click
from legato.desktop.contract import Desktop, DesktopOptions, Screenshot
from legato.desktop.fake import fake_tasks, make_desktop
from legato.rl.driver import Driver, GroupOptions
from legato.rl.harness import make_harness
from legato.rl.pool import Lease, Pool
from legato.rl.rollout import Limits
from legato.rl.types import Generation, Prompt, Rollout, Sampling
from legato.tasks import parse_tasks

HARNESS = make_harness("qwen3_5", tokenizer=None)
SCREEN = (1280, 720)


class Instant:
    """A policy that answers at once: clicks all over the screen, so that frames differ."""

    def __init__(self) -> None:
        rng = random.Random(0)
        clicks = (Click(x=rng.randrange(1280), y=rng.randrange(720)) for _ in range(200))
        self._replies = itertools.cycle([HARNESS.render_reply(c, SCREEN) for c in clicks])

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
        return Generation(
            text=next(self._replies),
            token_ids=tuple(range(8)),
            logprobs=(-0.5,) * 8,
            prompt_ids=None,
            image_tokens=None,
            version="0",
            finish_reason="stop",
        )

    async def aclose(self) -> None:
        return


class Meter:
    """CPU seconds spent in some calls, by the clock of the calling thread."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def wrap(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any) -> Any:
            started = time.thread_time()
            try:
                return fn(*args)
            finally:
                self.seconds += time.thread_time() - started

        return timed


async def measure(desktops: int, steps: int) -> dict[str, float]:
    drawing, encoding = Meter(), Meter()
    waits: list[float] = []

    def factory(options: DesktopOptions, slot: int) -> Desktop:
        desktop = make_desktop(options, slot)
        desktop.observe = drawing.wrap(desktop.observe)  # type: ignore[method-assign]
        return desktop

    seal, call = Screenshot.seal, Lease.call
    Screenshot.seal = encoding.wrap(seal)  # type: ignore[method-assign]

    async def timed_call(self: Lease, what: str, fn: Any, deadline: float) -> Any:
        started = time.monotonic()
        try:
            return await call(self, what, fn, deadline)
        finally:
            waits.append(time.monotonic() - started)

    Lease.call = timed_call  # type: ignore[method-assign]
    tasks = parse_tasks(fake_tasks(max(2, desktops // 4), seed=0), backend="fake")
    taken = 0

    async def count(rollout: Rollout) -> None:
        nonlocal taken
        taken += len(rollout.steps)

    try:
        async with Pool(factory, DesktopOptions(), size=desktops) as pool:
            driver = Driver(
                pool,
                Instant(),
                HARNESS,
                policy_model="stub",
                sampling=Sampling(),
                limits=Limits(max_steps=steps),
                groups=GroupOptions(size=4),
                on_rollout=count,
            )
            cpu, wall = time.process_time(), time.monotonic()
            await asyncio.gather(
                *(driver.run_group(task, task.task_id, priority=i) for i, task in enumerate(tasks))
            )
            cpu, wall = time.process_time() - cpu, time.monotonic() - wall
    finally:
        Screenshot.seal, Lease.call = seal, call  # type: ignore[method-assign]
    return {
        "driver": 1000 * (cpu - drawing.seconds - encoding.seconds) / taken,
        "drawing": 1000 * drawing.seconds / taken,
        "encoding": 1000 * encoding.seconds / taken,
        "rate": taken / wall,
        "longest": max(waits),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    args = parser.parse_args()
    few = asyncio.run(measure(64, args.steps))
    many = asyncio.run(measure(256, args.steps))
    print(f"driver: CPU per step, 64 desktops: {few['driver']:.2f} ms (bar <= 5 ms)")
    print(f"driver: drawing apart, per step: {few['drawing']:.2f} ms")
    print(f"driver: PNG encoding apart, per step: {few['encoding']:.2f} ms")
    print(f"driver: CPU per step, 256 desktops: {many['driver']:.2f} ms")
    ratio = many["driver"] / few["driver"]
    print(f"driver: CPU per step, 256 against 64 desktops: {ratio:.2f} (bar 0.80 to 1.20)")
    print(f"driver: longest call of 256 desktops: {many['longest']:.2f} s (bar <= 2 s)")
    print(
        f"driver: steps per second, 64 and 256 desktops: {few['rate']:.0f} and {many['rate']:.0f}"
    )


if __name__ == "__main__":
    main()
