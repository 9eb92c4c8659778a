"""One X session seen from outside: its screen, its windows, and hands to act on it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

import numpy as np

from legato.desktop.contract import Screenshot
from legato.desktop.x11.connection import XConnection
from legato.desktop.x11.input import Input
from legato.desktop.x11.screen import Screen
from legato.desktop.x11.windows import Windows
from legato.errors import EnvFailure

BACKGROUND = 0x3B6EA5


class Display:
    """Everything on one X connection. Used from one thread, but for :meth:`cut`.

    ``x_fd`` is a fresh connection to the server, owned from here on, and ``screen`` its screen.
    ``busy_seconds`` is that of :class:`~legato.desktop.ready.Signals`. Raises ``EnvFailure``.
    """

    def __init__(
        self,
        x_fd: int,
        screen: Screen,
        busy_seconds: Callable[[], float],
        cancelled: threading.Event,
    ) -> None:
        self.x = XConnection(x_fd)
        self._screen = screen
        try:
            self.windows = Windows(self.x)
            self.input = Input(self.x, self.windows, busy_seconds, cancelled)
            self.x.set_background(BACKGROUND)
        except BaseException:
            self.close()
            raise

    @property
    def size(self) -> tuple[int, int]:
        """(width, height) in pixels."""
        return self.x.width, self.x.height

    def pixels(self) -> np.ndarray:
        """The screen as it is now: uint32, shape (height, width), read-only."""
        return self._screen.pixels(self.x)

    def screenshot(self, *, settled: bool = False) -> Screenshot:
        """A copy of the screen in which nothing is half drawn by one request.

        ``settled`` says that nothing was done since a wait for the screen ended: what was seen
        last will do.
        """
        rgb = self._screen.last_rgb() if settled else None
        return Screenshot(self._screen.rgb(self.x) if rgb is None else rgb, time.time())

    def wait_for_panel(self, timeout: float) -> None:
        """Return once the panel is on the screen."""
        if not self.x.wait_until(lambda: self.windows.panel() is not None, timeout):
            raise EnvFailure(f"the panel did not appear within {timeout:g} s")

    def check(self, size: tuple[int, int]) -> None:
        """Raise ``EnvFailure`` unless server, screen and window manager work."""
        height, width, _ = self.screenshot().rgb.shape
        if (width, height) != size or self.size != size:
            raise EnvFailure(f"the screen is {width}x{height} instead of {size[0]}x{size[1]}")
        self.windows.check_manager()

    def cut(self) -> None:
        """End the connection, from any thread; a call that waits on it fails at once."""
        self.x.cut()

    def close(self) -> None:
        with contextlib.suppress(EnvFailure):
            self.x.close()
