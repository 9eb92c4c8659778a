"""Desktops of a Ray cluster of two nodes: leases, deaths, and an empty pool at the end."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster

from legato.desktop.actions import Click
from legato.desktop.fake import fake_tasks
from legato.errors import ActionError, EnvFailure
from legato.rl.config import DesktopConfig
from legato.tasks import parse_tasks
from legato_verl import pool as pool_module
from legato_verl.desktops import ClusterDesktops, ClusterLease
from legato_verl.pool import RESOURCE, DesktopPool, Offer, spread

DESKTOP = DesktopConfig(backend="fake", width=128, height=128)
(TASK,) = parse_tasks(fake_tasks(1, seed=1), backend="fake")
LONG = 120.0


class Owner:
    """Stands for a worker: it holds leases until it dies."""

    def __init__(self) -> None:
        self.leases: list[ClusterLease] = []

    async def enrol(self, pool: Any, name: str, offer: Offer) -> int:
        self.desktops = ClusterDesktops(pool, name, DESKTOP, offer)
        await pool.enrol.remote(name, ray.get_runtime_context().current_actor)
        return os.getpid()

    async def take(self, count: int) -> None:
        self.leases += [await self.desktops.lease() for _ in range(count)]

    async def stay(self) -> None:
        await asyncio.Event().wait()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two nodes, two raylets; both offer desktops."""
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 2, "resources": {RESOURCE: 3}}
    )
    cluster.add_node(num_cpus=2, resources={RESOURCE: 2})
    ray.init(address=cluster.address, log_to_driver=False)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture
def pool(cluster: Any) -> Iterator[Any]:
    actor = ray.remote(DesktopPool).options(num_cpus=0, max_concurrency=1000).remote()
    yield actor
    ray.get(actor.close.remote(), timeout=LONG)
    ray.kill(actor)


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONG
    while not holds():
        assert time.monotonic() < deadline, "it never came to hold"
        time.sleep(0.1)


def stats(pool: Any) -> dict[str, Any]:
    found: dict[str, Any] = ray.get(pool.stats.remote(), timeout=LONG)
    return found


def opened(pool: Any, wanted: int) -> Offer:
    offer: Offer = ray.get(pool.open.remote(DESKTOP, wanted), timeout=LONG)
    return offer


def test_spread() -> None:
    assert spread(5, {"a": 8, "b": 2, "c": 0}) == {"a": 3, "b": 2}
    assert spread(9, {"a": 3, "b": 2}) == {"a": 3, "b": 2}
    assert spread(1, {"a": 0}) == {}


def test_every_node_that_offers_desktops_has_some(pool: Any) -> None:
    assert opened(pool, 99).size == 5
    nodes = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
    assert set(stats(pool)["hosts"]) == nodes


def test_an_episode_from_afar(pool: Any) -> None:
    offer = opened(pool, 4)

    async def episode() -> tuple[int, str, float]:
        desktops = ClusterDesktops(pool, "test", DESKTOP, offer)
        lease = await desktops.lease()
        await lease.call("reset", lambda d: d.reset(TASK), LONG)
        await lease.call("wait", lambda d: d.wait_after_reset(), LONG)
        result = await lease.call("act", lambda d: d.act(Click(x=5, y=5)), LONG)
        shot = await lease.call("observe", lambda d: d.observe(), LONG)
        with pytest.raises(ActionError):
            await lease.call("act", lambda d: d.act(Click(x=5000, y=5)), LONG)
        score = await lease.call("evaluate", lambda d: d.evaluate(), LONG)
        lease.release()
        lease.release()
        return shot.width, result.ready.reason, score.reward

    width, reason, reward = asyncio.run(episode())
    assert width == 128
    assert reason in ("idle", "animated")
    assert 0 <= reward <= 1
    until(lambda: stats(pool)["leased"] == 0)


def test_a_wait_that_is_cancelled_takes_nothing(pool: Any) -> None:
    offer = opened(pool, 2)

    async def crowd() -> None:
        desktops = ClusterDesktops(pool, "test", DESKTOP, offer)
        held = [await desktops.lease() for _ in range(offer.size)]
        waiting = asyncio.create_task(desktops.lease())
        await asyncio.to_thread(until, lambda: stats(pool)["waiting"] == 1)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        for lease in held:
            lease.release()
        again = [await desktops.lease() for _ in range(offer.size)]
        for lease in again:
            lease.release()

    asyncio.run(asyncio.wait_for(crowd(), LONG))
    until(lambda: stats(pool)["leased"] == stats(pool)["waiting"] == 0)


def test_a_worker_that_is_killed_gives_its_desktops_back(pool: Any) -> None:
    offer = opened(pool, 3)
    owner = ray.remote(Owner).options(num_cpus=0).remote()
    pid = ray.get(owner.enrol.remote(pool, "doomed", offer), timeout=LONG)
    ray.get(owner.take.remote(offer.size), timeout=LONG)
    assert stats(pool)["owners"] == ["doomed"]
    os.kill(pid, signal.SIGKILL)
    until(lambda: stats(pool)["leased"] == 0)

    async def take_all() -> None:
        desktops = ClusterDesktops(pool, "next", DESKTOP, offer)
        for lease in [await desktops.lease() for _ in range(offer.size)]:
            lease.release()

    asyncio.run(asyncio.wait_for(take_all(), LONG))


def test_a_host_that_is_killed_costs_its_attempts_and_comes_back(pool: Any) -> None:
    offer = opened(pool, 4)

    async def lose_one() -> None:
        desktops = ClusterDesktops(pool, "test", DESKTOP, offer)
        held = [await desktops.lease() for _ in range(offer.size)]
        victim = held[0]
        pid = await victim._host.pid.remote()
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(EnvFailure, match="host of desktop"):
            await victim.call("reset", lambda d: d.reset(TASK), LONG)
        for lease in held:
            lease.release()
        for lease in [await desktops.lease() for _ in range(offer.size)]:  # the new host's, too
            await lease.call("reset", lambda d: d.reset(TASK), LONG)
            lease.release()

    asyncio.run(asyncio.wait_for(lose_one(), 2 * LONG))
    until(lambda: stats(pool)["leased"] == 0)


def test_who_asks_while_the_only_host_is_started_anew_gets_a_desktop(pool: Any) -> None:
    offer = opened(pool, 1)

    async def lose_it() -> None:
        desktops = ClusterDesktops(pool, "test", DESKTOP, offer)
        held = await desktops.lease()
        os.kill(await held._host.pid.remote(), signal.SIGKILL)
        await asyncio.to_thread(until, lambda: stats(pool)["hosts"] == [])
        held.release()
        again = await desktops.lease()
        await again.call("reset", lambda d: d.reset(TASK), LONG)
        again.release()

    asyncio.run(asyncio.wait_for(lose_it(), 2 * LONG))
    until(lambda: stats(pool)["leased"] == 0)


class Hurried(DesktopPool):
    """Its patience is a test's."""

    def __init__(self) -> None:
        super().__init__()
        pool_module.OPEN_S = 5.0


def test_a_node_whose_desktops_another_program_holds_is_named(cluster: Any) -> None:
    held = [ray.remote(Owner).options(num_cpus=0, resources={RESOURCE: n}).remote() for n in (3, 2)]
    ray.get([holder.take.remote(0) for holder in held], timeout=LONG)
    actor = ray.remote(Hurried).options(num_cpus=0, max_concurrency=1000).remote()
    with pytest.raises(EnvFailure, match="ray status"):
        ray.get(actor.open.remote(DESKTOP, 2), timeout=LONG)
    for taken in (*held, actor):
        ray.kill(taken)


def test_a_node_that_disappears_leaves_the_others(cluster: Any, pool: Any) -> None:
    node = cluster.add_node(num_cpus=1, resources={RESOURCE: 4})
    until(lambda: sum(n["Resources"].get(RESOURCE, 0) for n in ray.nodes() if n["Alive"]) == 9)
    offer = opened(pool, 9)
    cluster.remove_node(node, allow_graceful=False)
    until(lambda: stats(pool)["desktops"] == 5)

    async def work_on() -> None:
        desktops = ClusterDesktops(pool, "test", DESKTOP, offer)
        for lease in [await desktops.lease() for _ in range(5)]:
            lease.release()

    asyncio.run(asyncio.wait_for(work_on(), LONG))
