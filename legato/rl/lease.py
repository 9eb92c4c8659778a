"""What the driver asks of desktops, wherever they are: :mod:`.pool` has those of one process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from legato.desktop.contract import Desktop, DesktopOptions
from legato.desktop.extras import Deadlines

T = TypeVar("T")


class DesktopLease(Protocol):
    """The exclusive right to one clean desktop, until :meth:`release`."""

    waited_s: float
    """Seconds for which this lease had a place but no clean desktop yet."""

    @property
    def slot(self) -> int:
        """Number of the desktop."""
        ...

    async def call(self, what: str, fn: Callable[[Desktop], T], deadline: float) -> T:
        """Run ``fn(desktop)`` off the event loop; ``what`` names the call in errors.

        Whatever fails becomes an ``EnvFailure``, but for ``ActionError`` and ``GradeFailure``,
        which leave the desktop good.
        """
        ...

    def release(self) -> None:
        """Give the desktop back; returns at once. Idempotent."""
        ...


class Desktops(Protocol):
    """Hands out leases."""

    size: int
    """Leases at a time."""
    deadlines: Deadlines
    options: DesktopOptions

    async def lease(self, priority: Any = 0) -> DesktopLease:
        """Wait for a place, lowest ``priority`` first, then for a clean desktop.

        Raises ``EnvFailure`` when no desktop can be started any more.
        """
        ...
