"""The desktops of a whole Ray cluster: one named actor that leases them to every worker.

Nodes offer desktops as a custom resource (``ray start --resources '{"desktop": 16}'``), and each
that does gets a host actor. Where no node offers any, they run beside the pool. A worker that dies
takes no desktop along: its leases are reclaimed. A host that dies takes its leases along: the
attempts on it fail as ``env`` and are repeated elsewhere, and a new host is started while its node
lives.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import time
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from legato.desktop.extras import Deadlines
from legato.errors import EnvFailure, Failure
from legato.rl.config import DesktopConfig
from legato_verl.hosts import Answer, DesktopHost

log = logging.getLogger(__name__)

NAME = "legato-desktops"
RESOURCE = "desktop"
CONCURRENCY = 10_000
"""Calls under way at a time, most of them waiting."""
HOST_RESTARTS = 3
"""How often a host that died is started again on its node."""
OPEN_S = 120.0
CLOSE_S = 60.0


@dataclass(slots=True)
class _Host:
    handle: Any
    node: str
    size: int
    first_slot: int
    restarts: int = 0
    leases: set[str] = field(default_factory=set)

    @property
    def free(self) -> int:
        return self.size - len(self.leases)


@dataclass(slots=True)
class _Wish:
    """A lease asked for and not given back yet."""

    owner: str
    place: asyncio.Future[_Host]
    host: _Host | None = None


@dataclass(frozen=True, slots=True)
class Offer:
    """What the pool has."""

    size: int
    """Leases at a time."""
    deadlines: Deadlines


@dataclass(frozen=True, slots=True)
class Usage:
    """Desktop-seconds since the pool was opened."""

    leased: float
    offered: float


class DesktopPool:
    """Body of the actor. Every method may be called any number of times."""

    def __init__(self) -> None:
        self._hosts: list[_Host] = []
        self._wishes: dict[str, _Wish] = {}
        self._waiting: list[tuple[Any, int, str]] = []
        self._order = itertools.count()
        self._slots = itertools.count(step=10_000)
        self._owners: set[str] = set()
        self._background: set[asyncio.Task[None]] = set()
        self._opening: asyncio.Task[None] | None = None
        self._coming = 0
        """Hosts that are being started in the place of lost ones."""
        self._gone = "the desktop pool is not open"
        self._deadlines = Deadlines()
        self._usage = [0.0, 0.0]
        self._counted_at = time.monotonic()

    async def open(self, desktop: DesktopConfig, desktops: int) -> Offer:
        """Start ``desktops`` desktops on the nodes that offer them."""
        if self._opening is None:
            self._opening = asyncio.create_task(self._open(desktop, desktops))
        await asyncio.shield(self._opening)
        return Offer(sum(host.size for host in self._hosts), self._deadlines)

    async def enrol(self, owner: str, handle: Any) -> None:
        """Watch a worker, an actor with a ``stay`` method; its leases end with it."""
        if owner not in self._owners:
            self._owners.add(owner)
            self._spawn(self._watch_owner(owner, handle))

    async def lease(self, name: str, owner: str, priority: Any) -> Answer:
        """``(host, slot, seconds waited)`` once there is a place and a clean desktop."""
        while True:
            if not self._hosts and not self._coming:
                return Answer(error="env", said=self._gone, transient=False)
            wish = _Wish(owner, asyncio.get_running_loop().create_future())
            self._wishes[name] = wish
            heapq.heappush(self._waiting, (priority, next(self._order), name))
            self._serve()
            try:
                host = await wish.place
                answer: Answer = await host.handle.lease.remote(name)
            except asyncio.CancelledError:
                return Answer(error="env", said=f"the lease {name} was given back")
            except EnvFailure as e:
                return Answer(error="env", said=str(e), transient=e.transient)
            except RayError as e:
                self._forget(name)
                self._lost(host, f"{type(e).__name__} on node {host.node}")
                continue
            if self._wishes.get(name) is not wish:  # given back while the desktop was made clean
                host.handle.release.remote(name)
                return Answer(error="env", said=f"the lease {name} was given back")
            if answer.error is not None:
                self._forget(name)
                if not answer.transient:
                    self._lost(host, answer.said)
                    continue
                return answer
            slot, waited = answer.value
            return Answer((host.handle, host.first_slot + slot, waited))

    async def release(self, name: str) -> None:
        wish = self._forget(name)
        if wish is None:
            return
        wish.place.cancel()
        if wish.host is not None:
            wish.host.handle.release.remote(name)

    async def stats(self) -> dict[str, Any]:
        """Hosts, desktops offered, leases held, and who holds them."""
        return {
            "hosts": [host.node for host in self._hosts],
            "desktops": sum(host.size for host in self._hosts),
            "leased": sum(len(host.leases) for host in self._hosts),
            "waiting": sum(w.host is None for w in self._wishes.values()),
            "owners": sorted({wish.owner for wish in self._wishes.values()}),
        }

    async def usage(self) -> Usage:
        self._count()
        return Usage(*self._usage)

    async def close(self) -> dict[str, Any]:
        """Take all leases back and close every desktop; returns the last :meth:`stats`."""
        for name in list(self._wishes):
            await self.release(name)
        stats = await self.stats()
        hosts, self._hosts, self._coming = self._hosts, [], 0
        self._gone = "the desktop pool is closed"
        for task in self._background:
            task.cancel()
        closing = [asyncio.wrap_future(host.handle.close.remote().future()) for host in hosts]
        if closing:
            await asyncio.wait(closing, timeout=CLOSE_S)
        for host in hosts:
            ray.kill(host.handle)
        return stats

    # --- hosts -----------------------------------------------------------------------------------

    async def _open(self, desktop: DesktopConfig, desktops: int) -> None:
        self._desktop = desktop
        here = ray.get_runtime_context().get_node_id()
        offers = {
            node["NodeID"]: int(node["Resources"].get(RESOURCE, 0))
            for node in ray.nodes()
            if node["Alive"]
        }
        self._by_resource = any(offers.values())
        if not self._by_resource:
            log.info("no node offers the resource %r: desktops run on %s", RESOURCE, here)
            offers = {here: desktops}
        shares = spread(desktops, offers)
        if sum(shares.values()) < desktops:
            log.warning(
                "legato.desktops=%d, but the nodes offer %d", desktops, sum(shares.values())
            )
        for node, size in shares.items():
            self._hosts.append(self._start(node, size))
        for found in await asyncio.gather(*map(_opened, self._hosts)):
            self._deadlines = found
        for host in self._hosts:
            self._spawn(self._watch_host(host))

    def _start(self, node: str, size: int) -> _Host:
        handle = (
            ray.remote(DesktopHost)
            .options(
                num_cpus=0,
                resources={RESOURCE: size} if self._by_resource else None,
                max_concurrency=CONCURRENCY,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
            )
            .remote(self._desktop, size)
        )
        return _Host(handle, node, size, next(self._slots))

    async def _watch_host(self, host: _Host) -> None:
        try:
            await host.handle.stay.remote()
        except RayError as e:
            self._lost(host, f"{type(e).__name__} on node {host.node}")

    def _lost(self, host: _Host, why: str) -> None:
        if host not in self._hosts:
            return
        self._count()
        self._hosts.remove(host)
        log.error("a desktop host is lost: %s", why)
        self._gone = f"no desktop host is left; the last one said: {why}"
        for name in host.leases:
            self._wishes.pop(name, None)
        host.leases.clear()
        alive = any(n["Alive"] and n["NodeID"] == host.node for n in ray.nodes())
        if alive and host.restarts < HOST_RESTARTS:
            self._coming += 1
            self._spawn(self._restart(host))
        else:
            self._disappoint()

    async def _restart(self, lost: _Host) -> None:
        ray.kill(lost.handle)
        host = self._start(lost.node, lost.size)
        host.restarts = lost.restarts + 1
        try:
            await _opened(host)
        except (RayError, Failure) as e:
            log.error("no new desktop host on node %s: %s", lost.node, e)
            self._coming -= 1
            self._disappoint()
            return
        self._count()
        self._coming -= 1
        self._hosts.append(host)
        self._spawn(self._watch_host(host))
        self._serve()

    def _disappoint(self) -> None:
        """Let nobody wait for a desktop if there is no host any more, and none to come."""
        if self._hosts or self._coming:
            return
        for wish in self._wishes.values():
            if not wish.place.done():
                wish.place.set_exception(EnvFailure(self._gone, transient=False))

    # --- leases ----------------------------------------------------------------------------------

    def _serve(self) -> None:
        """Give free places to those who wait, on the emptiest host first."""
        while self._waiting:
            host = max(self._hosts, key=lambda h: h.free, default=None)
            if host is None or host.free <= 0:
                return
            _, _, name = heapq.heappop(self._waiting)
            wish = self._wishes.get(name)
            if wish is None or wish.place.done():
                continue
            self._count()
            host.leases.add(name)
            wish.host = host
            wish.place.set_result(host)

    def _forget(self, name: str) -> _Wish | None:
        wish = self._wishes.pop(name, None)
        if wish is not None and wish.host is not None:
            self._count()
            wish.host.leases.discard(name)
            self._serve()
        return wish

    async def _watch_owner(self, owner: str, handle: Any) -> None:
        try:
            await handle.stay.remote()
        except RayError:
            mine = [name for name, wish in self._wishes.items() if wish.owner == owner]
            log.warning("worker %s is gone; %d leases reclaimed", owner, len(mine))
            for name in mine:
                await self.release(name)
            self._owners.discard(owner)

    def _count(self) -> None:
        now = time.monotonic()
        passed, self._counted_at = now - self._counted_at, now
        self._usage[0] += passed * sum(len(host.leases) for host in self._hosts)
        self._usage[1] += passed * sum(host.size for host in self._hosts)

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)


async def _opened(host: _Host) -> Deadlines:
    """Raises ``EnvFailure`` if Ray does not start the host or the host not its desktops."""
    try:
        async with asyncio.timeout(OPEN_S):
            found: Deadlines = await host.handle.open.remote()
            return found
    except TimeoutError:
        raise EnvFailure(
            f"node {host.node} did not start {host.size} desktops within {OPEN_S:g} s: does "
            f"another program hold its resource {RESOURCE!r}? `ray status` tells",
            transient=False,
        ) from None


def spread(wanted: int, offers: dict[str, int]) -> dict[str, int]:
    """``wanted`` desktops over nodes, as evenly as their offers allow; nodes without are left out.

    >>> spread(5, {"a": 8, "b": 2, "c": 0})
    {'a': 3, 'b': 2}
    """
    shares = dict.fromkeys(offers, 0)
    for _ in range(wanted):
        open_nodes = [node for node in offers if shares[node] < offers[node]]
        if not open_nodes:
            break
        shares[min(open_nodes, key=lambda node: shares[node])] += 1
    return {node: share for node, share in shares.items() if share}


def pool_actor() -> Any:
    """The cluster's pool, made on the node that asks first; it lives as long as who made it."""
    here = ray.get_runtime_context().get_node_id()
    return (
        ray.remote(DesktopPool)
        .options(
            name=NAME,
            get_if_exists=True,
            num_cpus=0,
            max_concurrency=CONCURRENCY,
            scheduling_strategy=NodeAffinitySchedulingStrategy(here, soft=False),
        )
        .remote()
    )
