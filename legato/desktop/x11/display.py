"""One X session seen from outside: its screen, its windows, and hands to act on it."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable

import numpy as np

from legato.desktop.contract import Screenshot
from legato.desktop.x11.connection import XConnection
from legato.desktop.x11.framebuffer import Framebuffer
from legato.desktop.x11.input import Input
from legato.desktop.x11.windows import Windows
from legato.errors import EnvFailure

BACKGROUND = 0x3B6EA5


class Display:
    """Everything on one X connection. Used from one thread, but for :meth:`cut`.

    ``x_fd`` is a fresh connection to the server, ``memory_fd`` its screen memory; both are owned
    from here on. ``busy_seconds`` is that of :class:`~legato.desktop.ready.Signals`. Raises
    ``EnvFailure``.
    """

    def __init__(
        self,
        x_fd: int,
        memory_fd: int,
        busy_seconds: Callable[[], float],
        cancelled: threading.Event,
    ) -> None:
        try:
            self.x = XConnection(x_fd)
        except BaseException:
            os.close(memory_fd)
            raise
        try:
            self._framebuffer = Framebuffer(memory_fd)
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
        """The live screen, current as of now: uint32, shape (height, width), read-only."""
        self.x.sync()
        return self._framebuffer.pixels

    def screenshot(self) -> Screenshot:
        """A copy of the screen in which nothing is half drawn by one request."""
        with self.x.undisturbed():
            rgb = self._framebuffer.rgb()
            taken_at = time.time()
        return Screenshot(rgb, taken_at)

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
