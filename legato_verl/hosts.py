"""Desktops of one node, behind a Ray actor: the pool of one process, called from afar."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import Any, Literal

from legato.desktop.extras import Deadlines
from legato.errors import ActionError, EnvFailure, Failure, GradeFailure
from legato.rl.config import DesktopConfig
from legato.rl.pool import Lease, Pool


@dataclass(frozen=True, slots=True)
class Answer:
    """What a desktop call came to; errors travel as what they are, not as Ray's."""

    value: Any = None
    error: Literal["action", "env", "grade"] | None = None
    said: str = ""
    transient: bool = True

    def result(self) -> Any:
        """The value, or the error raised again."""
        match self.error:
            case None:
                return self.value
            case "action":
                raise ActionError(self.said)
            case "grade":
                raise GradeFailure(self.said, transient=self.transient)
            case _:
                raise EnvFailure(self.said, transient=self.transient)


class DesktopHost:
    """Body of the actor. One event loop; leases are named by whoever takes them."""

    def __init__(self, desktop: DesktopConfig, size: int) -> None:
        self._config = desktop
        self._size = size
        self._pool: Pool | None = None
        self._leases: dict[str, Lease] = {}

    async def open(self) -> Deadlines:
        """Start the desktops; they go on booting. Returns what they need."""
        if self._pool is None:
            pool = Pool(
                self._config.factory(),
                self._config.desktop_options(),
                size=self._size,
                standby=self._config.standby,
            )
            self._pool = await pool.__aenter__()
        return self._pool.deadlines

    async def pid(self) -> int:
        return os.getpid()

    async def lease(self, name: str) -> Answer:
        """``(slot, seconds waited)`` of a clean desktop, once there is one."""
        assert self._pool is not None, "open() first"
        try:
            lease = await self._pool.lease()
        except Failure as e:
            return _failed(e)
        self._leases[name] = lease
        return Answer((lease.slot, lease.waited_s))

    async def call(self, name: str, method: str, args: tuple[Any, ...], deadline: float) -> Answer:
        """Call a method of the leased desktop; past ``deadline`` seconds it is killed."""
        lease = self._leases.get(name)
        if lease is None:
            return Answer(error="env", said=f"the lease {name} is over")
        try:
            return Answer(
                await lease.call(method, lambda desktop: getattr(desktop, method)(*args), deadline)
            )
        except ActionError as e:
            return Answer(error="action", said=str(e))
        except Failure as e:
            return _failed(e)

    async def release(self, name: str) -> None:
        """Take the desktop back. Idempotent."""
        lease = self._leases.pop(name, None)
        if lease is not None:
            lease.release()

    async def stay(self) -> None:
        """Never returns: whoever waits for it learns of the host's end."""
        await asyncio.Event().wait()

    async def close(self) -> None:
        if self._pool is not None:
            await self._pool.aclose()


def _failed(e: Failure) -> Answer:
    kind: Literal["env", "grade"] = "grade" if isinstance(e, GradeFailure) else "env"
    return Answer(error=kind, said=str(e), transient=e.transient)
