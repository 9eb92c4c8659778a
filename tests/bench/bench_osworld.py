"""OSWorld's own loop against ours, reset by revert against fast reset, and a QEMU guest.

``python tests/bench/bench_osworld.py``: the same tasks, actions and verdicts on OSWorld's docker
provider, once with its own fixed waits and a new container for each rollout, once with the ready
signal and fast reset. The guest is that of the tests. QEMU runs in software emulation.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from legato.desktop.actions import AnyAction, Done
from legato.desktop.contract import DesktopOptions
from legato.desktop.osworld.desktop import OSWorldDesktop, make_desktop
from legato.desktop.osworld.environment import Environment, build
from tests.desktop.osworld.engine import Engine
from tests.desktop.osworld.examples import APPEND, SAVE_AS, TWO_METRICS
from tests.desktop.osworld.guest_image import rootfs
from tests.desktop.osworld.virtual_machine import disk

REPO = Path(__file__).resolve().parents[2]
CACHE = REPO / ".cache" / "osworld-guest"
ROLLOUTS = ((APPEND, APPEND.right, 1.0), (TWO_METRICS, TWO_METRICS.wrong, 0.0))
OSWORLD_PAUSE_S = 2.0
"""Of ``DesktopEnv.step``."""


@contextmanager
def desktop(environment: Environment, checkout: Path, **options: Any) -> Iterator[OSWorldDesktop]:
    common = {
        k: options.pop(k) for k in ("ready_signal", "fast_reset", "fixed_wait") if k in options
    }
    made = make_desktop(
        DesktopOptions(
            **common,
            ready_timeout=60.0,
            extra={
                "osworld_path": str(checkout),
                "environment": str(environment.path),
                "acceleration": "tcg",
                **options,
            },
        ),
        0,
    )
    try:
        yield made
    finally:
        made.close()


def play(machine: OSWorldDesktop, example: Any, actions: Sequence[AnyAction]) -> float:
    machine.reset(example.task)
    machine.wait_after_reset()
    machine.observe()
    for action in actions:
        machine.act(action)
        machine.observe()
    machine.act(Done())
    machine.wait_before_eval()
    return machine.evaluate().reward


def loop(machine: OSWorldDesktop) -> tuple[float, list[float]]:
    """Seconds per rollout, and the verdicts; the first machine's boot is not counted."""
    machine.prepare()
    play(machine, APPEND, ())
    start = time.monotonic()
    verdicts = [play(machine, example, actions) for example, actions, _ in ROLLOUTS]
    return (time.monotonic() - start) / len(ROLLOUTS), verdicts


def resets(machine: OSWorldDesktop, example: Any, how: str) -> float:
    taken = []
    for _ in range(3):
        start = time.monotonic()
        machine.reset(example.task)
        taken.append(time.monotonic() - start)
        assert machine.last_reset == how
    return statistics.median(taken)


def main() -> None:
    environment = build(REPO / ".cache" / "osworld")
    wanted = [verdict for *_, verdict in ROLLOUTS]
    with tempfile.TemporaryDirectory(prefix="legato-bench-") as folder, Engine() as engine:
        checkout = Path(folder)
        (checkout / "evaluation_examples").mkdir()
        (checkout / "docker_vm_data").mkdir()
        (checkout / "docker_vm_data" / "Ubuntu.qcow2").touch()
        engine.load(rootfs(CACHE), ["/bin/sh", "/opt/start.sh"])
        os.environ["DOCKER_HOST"] = engine.host
        with desktop(environment, checkout) as ours:
            our_s, our_verdicts = loop(ours)
            fast = resets(ours, APPEND, "fast")
            revert = resets(ours, SAVE_AS, "revert")
        own = {"ready_signal": False, "fast_reset": False, "fixed_wait": OSWORLD_PAUSE_S}
        with desktop(environment, checkout, **own) as theirs:
            their_s, their_verdicts = loop(theirs)
        same = our_verdicts == their_verdicts == wanted
        ratio = their_s / our_s
        print(f"osworld: rollouts per hour, its own loop: {3600 / their_s:.1f} 1/h (bar none)")
        print(f"osworld: rollouts per hour, ours: {3600 / our_s:.1f} 1/h (bar none)")
        print(
            f"osworld: ours against its own loop, equal verdicts {same}: {ratio:.1f}x (bar >= 3x)"
        )
        print(f"osworld: reset by a new container p50: {revert:.1f} s (bar none)")
        print(f"osworld: fast reset p50: {fast:.1f} s (bar none)")
        assert same, (our_verdicts, their_verdicts)
        bench_qemu(environment, checkout)


def bench_qemu(environment: Environment, checkout: Path) -> None:
    guest = disk(CACHE)
    options = {
        "provider": "qemu",
        "vm_image": str(guest.disk.absolute()),
        "qemu_args": guest.arguments,
        "cpus": 2,
        "memory_mib": 1536,
        "boot_timeout": 600.0,
    }
    with desktop(environment, checkout, **options) as machine:
        start = time.monotonic()
        machine.prepare()
        boot = time.monotonic() - start
        machine.reset(SAVE_AS.task)
        start = time.monotonic()
        machine.reset(SAVE_AS.task)
        reverted = time.monotonic() - start
        assert machine.last_reset == "revert"
        score = play(machine, APPEND, APPEND.right)
        print(f"osworld: QEMU in software, boot and snapshot: {boot:.0f} s (bar none)")
        print(f"osworld: QEMU in software, loadvm and set-up: {reverted:.1f} s (bar none)")
        print(f"osworld: QEMU in software, right actions score: {score:g} (bar 1)")


if __name__ == "__main__":
    main()
