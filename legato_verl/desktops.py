"""The driver's view of the cluster's desktops, from inside one worker."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from typing import Any, TypeVar

import ray
from ray.exceptions import GetTimeoutError, RayError

from legato.desktop.actions import AnyAction
from legato.desktop.contract import (
    ActResult,
    Desktop,
    DesktopOptions,
    Ready,
    Score,
    Screenshot,
    Task,
)
from legato.errors import EnvFailure
from legato.rl.config import DesktopConfig
from legato.rl.worker import Worker
from legato_verl.hosts import Answer
from legato_verl.pool import Offer

T = TypeVar("T")

GRACE_S = 15.0
"""A host answers by itself when a call is past its deadline; only one that is gone is not heard."""


class ClusterDesktops:
    """Implements :class:`~legato.rl.lease.Desktops` over the pool actor."""

    def __init__(self, pool: Any, owner: str, config: DesktopConfig, offer: Offer) -> None:
        self.size = offer.size
        self.deadlines = offer.deadlines
        self.options: DesktopOptions = config.desktop_options()
        self._pool = pool
        self._owner = owner
        self._numbers = itertools.count()

    async def lease(self, priority: Any = 0) -> ClusterLease:
        name = f"{self._owner}/{next(self._numbers)}"
        try:
            answer: Answer = await self._pool.lease.remote(name, self._owner, priority)
        except asyncio.CancelledError:
            self._pool.release.remote(name)
            raise
        except RayError as e:
            raise EnvFailure(f"the desktop pool is gone: {e}", transient=False) from None
        host, slot, waited = answer.result()
        return ClusterLease(self._pool, name, host, slot, waited)


class ClusterLease:
    """Implements :class:`~legato.rl.lease.DesktopLease`."""

    def __init__(self, pool: Any, name: str, host: Any, slot: int, waited_s: float) -> None:
        self.waited_s = waited_s
        self._slot = slot
        self._pool = pool
        self._name = name
        self._host = host
        self._released = False
        self._worker = Worker(f"lease-{slot}")

    @property
    def slot(self) -> int:
        return self._slot

    async def call(self, what: str, fn: Callable[[Desktop], T], deadline: float) -> T:
        far = FarDesktop(self._host, self._name, self._slot, time.monotonic() + deadline)
        try:
            return await self._worker.call(lambda: fn(far), deadline + GRACE_S)
        except TimeoutError:
            raise EnvFailure(
                f"{what} on desktop {self._slot} took longer than {deadline:g} s"
            ) from None

    def release(self) -> None:
        if not self._released:
            self._released = True
            self._pool.release.remote(self._name)
            self._worker.stop()


class FarDesktop(Desktop):
    """A leased desktop behind its host; every call ends by ``until`` (``time.monotonic``)."""

    def __init__(self, host: Any, lease: str, slot: int, until: float) -> None:
        self._host = host
        self._lease = lease
        self._slot = slot
        self._until = until

    def reset(self, task: Task) -> None:
        self._call("reset", task)

    def wait_after_reset(self) -> Ready:
        ready: Ready = self._call("wait_after_reset")
        return ready

    def observe(self) -> Screenshot:
        screenshot: Screenshot = self._call("observe")
        return screenshot

    def act(self, action: AnyAction) -> ActResult:
        result: ActResult = self._call("act", action)
        return result

    def wait_before_eval(self) -> Ready:
        ready: Ready = self._call("wait_before_eval")
        return ready

    def evaluate(self) -> Score:
        score: Score = self._call("evaluate")
        return score

    def close(self) -> None:
        return

    def _call(self, method: str, *args: Any) -> Any:
        left = max(0.1, self._until - time.monotonic())
        try:
            answer: Answer = ray.get(
                self._host.call.remote(self._lease, method, args, left), timeout=left + GRACE_S
            )
        except GetTimeoutError:
            raise EnvFailure(f"the host of desktop {self._slot} does not answer") from None
        except RayError as e:
            why = f"{type(e).__name__} during {method}"
            raise EnvFailure(f"the host of desktop {self._slot} is gone: {why}") from None
        return answer.result()
