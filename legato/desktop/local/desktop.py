"""The local desktop: an X session in a sandbox on this machine."""

from __future__ import annotations

from legato.desktop.contract import DesktopOptions
from legato.desktop.guest.desktop import GuestDesktop
from legato.desktop.local import keeper
from legato.desktop.local.options import LocalOptions
from legato.desktop.local.sandbox import Sandbox


class LocalProvider:
    """Implements :class:`~legato.desktop.guest.box.Provider` with bubblewrap sandboxes."""

    def __init__(self, options: LocalOptions) -> None:
        self._options = options
        self.keeper: keeper.Keeper | None = None

    def create(self) -> Sandbox:
        if self.keeper is not None and not self.keeper.alive:
            self.close()
        if self.keeper is None:
            self.keeper = keeper.acquire()
        return Sandbox(self.keeper, self._options)

    def close(self) -> None:
        if self.keeper is not None:
            keeper.release(self.keeper)
            self.keeper = None


class LocalDesktop(GuestDesktop):
    """A :class:`~legato.desktop.guest.desktop.GuestDesktop` on this machine."""

    def __init__(self, options: DesktopOptions, slot: int) -> None:
        super().__init__(options, slot, LocalProvider(LocalOptions.read(options.extra)))
