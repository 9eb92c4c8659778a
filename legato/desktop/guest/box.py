"""What a kind of machine must offer to become a desktop: boxes that run the guest program.

A new kind is one file: a :class:`Provider`, and a factory that gives it to
:class:`~legato.desktop.guest.desktop.GuestDesktop`. Everything above (episodes, fast reset,
standby, ready signal, health, lockdown) is the same for all of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from legato.desktop.guest.client import GuestClient


class Box(Protocol):
    """One machine, from its start to its end. All methods are bounded in time.

    Inside, the guest program (:mod:`legato.desktop.image` says what the machine must have) runs as
    the first process of its pid namespace, without privileges and without a network; no other
    program has seen its standard streams. The box ends by itself soon after its driver is gone,
    however that ends.
    """

    home: str
    """The agent's home inside, such as ``/home/user``."""
    scratch: Path
    """A directory of the driver's host that is this box's alone; need not exist yet."""

    def connect(self) -> GuestClient:
        """Wait until the guest program answers; called once. Raises ``EnvFailure``."""
        ...

    def kill(self) -> None:
        """Have it destroyed, from any thread; returns soon. Idempotent, never raises."""
        ...

    def wait_gone(self) -> None:
        """Once killed: wait until nothing is left, on either side. Raises ``EnvFailure``."""
        ...


class Provider(Protocol):
    """Where the boxes of one desktop come from; used by one thread at a time."""

    def create(self) -> Box:
        """A new box, which may still be starting: only :meth:`Box.connect` waits for it.

        Raises ``EnvFailure``.
        """
        ...

    def close(self) -> None:
        """Let go of what the provider itself holds. Idempotent, never raises."""
        ...
