"""A trainer that waits for Ray without a limit, and what must end that."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from legato_verl.watch import SIGNAL, Hopeless, Watch

LONG = 120.0


class Member:
    """A recorder, a worker or a model server, as far as the watch asks them."""

    def __init__(self) -> None:
        self.engine = SimpleNamespace(errored=False, dead_error="out of memory")
        self._verdicts: asyncio.Queue[str] = asyncio.Queue()

    async def pid(self) -> int:
        return os.getpid()

    async def stay(self) -> None:
        await asyncio.Event().wait()

    async def verdict(self) -> str:
        return await self._verdicts.get()

    async def give_up(self, why: str) -> None:
        await self._verdicts.put(why)

    async def break_engine(self) -> None:
        self.engine.errored = True


class Manager:
    def __init__(self) -> None:
        self.recorder = member()
        self.agent_loop_workers = [member()]
        self.server_addresses = ["10.0.0.1:80"]
        self.server_handles = [member()]
        self.replaced: list[int] = []

    def replace(self, number: int) -> None:
        self.agent_loop_workers[number] = member()
        self.replaced.append(number)


def member() -> Any:
    return ray.remote(Member).options(num_cpus=0, max_concurrency=100).remote()


@pytest.fixture(scope="module", autouse=True)
def _cluster() -> Iterator[None]:
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def train(manager: Manager, begin: Callable[[], object]) -> None:
    """As verl does, but not forever."""
    with Watch(manager, [manager]):
        begin()
        ray.get(manager.recorder.stay.remote(), timeout=LONG)


def test_a_broken_engine_interrupts_whoever_waits_for_ray() -> None:
    manager = Manager()
    before = signal.getsignal(SIGNAL)
    with pytest.raises(Hopeless, match=r"server 10\.0\.0\.1:80 died: out of memory"):
        train(manager, manager.server_handles[0].break_engine.remote)
    assert signal.getsignal(SIGNAL) == before


def test_what_a_worker_calls_hopeless_ends_the_run() -> None:
    manager = Manager()
    with pytest.raises(Hopeless, match="no disk left"):
        train(manager, lambda: manager.recorder.give_up.remote("no disk left"))


def test_a_broken_engine_is_named_where_workers_lament_lost_rollouts() -> None:
    manager = Manager()

    def begin() -> None:
        ray.get(manager.server_handles[0].break_engine.remote(), timeout=LONG)
        manager.recorder.give_up.remote("8 rollouts in a row were lost")

    with pytest.raises(Hopeless, match="died: out of memory"):
        train(manager, begin)


def test_a_worker_that_died_is_replaced_and_the_run_goes_on() -> None:
    manager = Manager()
    pid = ray.get(manager.agent_loop_workers[0].pid.remote(), timeout=LONG)

    def begin() -> None:
        os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + LONG
        while not manager.replaced and time.monotonic() < deadline:
            time.sleep(0.1)
        manager.recorder.give_up.remote("enough")

    with pytest.raises(Hopeless, match="enough"):
        train(manager, begin)
    assert manager.replaced == [0]


def test_an_interrupt_of_the_users_own_stays_one() -> None:
    manager = Manager()
    with pytest.raises(KeyboardInterrupt), Watch(manager, [manager]):
        raise KeyboardInterrupt
