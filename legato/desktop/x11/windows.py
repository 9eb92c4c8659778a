"""Top-level windows, asked of and through the window manager (EWMH, freedesktop.org)."""

from __future__ import annotations

import itertools
import struct
from typing import Any

import xcffib.xproto
from xcffib.xproto import EventMask

from legato.desktop.contract import Window
from legato.desktop.x11.connection import XConnection
from legato.errors import EnvFailure

ANSWER_S = 5.0
"""Deadline for the window manager to do as it was told, in seconds."""
CLOSE_S = 10.0
"""The same for a program that has been told to close a window."""

_TO_MANAGER = EventMask.SubstructureRedirect | EventMask.SubstructureNotify
_STATIC_GRAVITY = 10
"""Positions are those of the window itself, not of its frame."""
_REMOVE = 0
"""Of a state of a window (``_NET_WM_STATE``)."""
_FROM_PAGER = 2
"""EWMH source indication: the window manager obeys, without its focus-stealing rules."""


class Windows:
    """Lists, activates, closes and pings windows. Raises ``EnvFailure``."""

    def __init__(self, x: XConnection) -> None:
        self._x = x
        self._serial = itertools.count(1)
        self._ponged = 0
        x.handlers.append(self._take_pong)

    def managed(self) -> frozenset[int]:
        """Ids of all managed windows (``_NET_CLIENT_LIST``), panel included."""
        return frozenset(self._x.cardinals(self._x.root, "_NET_CLIENT_LIST"))

    def panel(self) -> int | None:
        """The mapped panel, if there is one yet."""
        dock = self._x.atom("_NET_WM_WINDOW_TYPE_DOCK")
        for window in self.managed():
            if dock in self._x.cardinals(window, "_NET_WM_WINDOW_TYPE"):
                return window
        return None

    def list(self) -> list[Window]:
        """Windows of programs, oldest first; without panel and desktop."""
        kinds = ("_NET_WM_WINDOW_TYPE_DOCK", "_NET_WM_WINDOW_TYPE_DESKTOP")
        hidden = {self._x.atom(name) for name in kinds}
        found = []
        for window in self._x.cardinals(self._x.root, "_NET_CLIENT_LIST"):
            if hidden.isdisjoint(self._x.cardinals(window, "_NET_WM_WINDOW_TYPE")):
                described = self._describe(window)
                if described is not None:
                    found.append(described)
        return found

    def active(self) -> int | None:
        """The window that has the keyboard, if any."""
        ids = self._x.cardinals(self._x.root, "_NET_ACTIVE_WINDOW")
        return ids[0] if ids and ids[0] else None

    def activate(self, window: int) -> None:
        """Raise a window and give it the keyboard; returns when it has it."""
        self._must_exist(window)
        self._tell(window, "_NET_ACTIVE_WINDOW", _FROM_PAGER)
        if not self._x.wait_until(lambda: self.active() == window, ANSWER_S):
            raise EnvFailure(f"window {window} was not activated within {ANSWER_S:g} s")

    def close(self, window: int) -> bool:
        """Ask a window to close, as its close button does; it may ask back before it does.

        Returns whether it did either, by the windows there are. Raises ``EnvFailure`` if its
        program does not even take notice.
        """
        self._must_exist(window)
        before = self.managed()
        self._tell(window, "_NET_CLOSE_WINDOW", 0, _FROM_PAGER)
        if not self.ping(window, ANSWER_S) and self._takes_pings(window):
            if self._x.wait_until(lambda: self.managed() != before, CLOSE_S):
                return True
            raise EnvFailure(f"the program of window {window} does not answer")
        return self._x.wait_until(lambda: self.managed() != before, CLOSE_S)

    def place(self, window: int, x: int, y: int, width: int, height: int) -> None:
        """Put the inside of a window (its frame apart) there; it may insist on its own size."""
        self._must_exist(window)
        sides = (self._x.atom(f"_NET_WM_STATE_MAXIMIZED_{side}") for side in ("VERT", "HORZ"))
        # A window that fills the screen stays where it is.
        self._tell(window, "_NET_WM_STATE", _REMOVE, *sides, _FROM_PAGER)
        have = _STATIC_GRAVITY | 0b1111 << 8 | _FROM_PAGER << 12
        self._tell(window, "_NET_MOVERESIZE_WINDOW", have, x, y, width, height)

        def there() -> bool:
            now = self._describe(window)
            return now is not None and (now.x, now.y) == (x, y)

        if not self._x.wait_until(there, ANSWER_S):
            raise EnvFailure(f"window {window} was not moved within {ANSWER_S:g} s")

    def check_manager(self) -> None:
        """Raise ``EnvFailure`` unless the window manager answers.

        Asks it for the frame a window of ours would get (``_NET_REQUEST_FRAME_EXTENTS``), which
        shows nothing on the screen.
        """
        x = self._x
        with x.guarded():
            probe = x.conn.generate_id()
            x.conn.core.CreateWindow(0, probe, x.root, 0, 0, 1, 1, 0, 1, 0, 0, [])
        try:
            self._tell(probe, "_NET_REQUEST_FRAME_EXTENTS")
            # The answer is an event of the probe only to who asks for it; the root's do not say.
            with x.guarded():
                x.conn.core.ChangeWindowAttributes(
                    probe, xcffib.xproto.CW.EventMask, [EventMask.PropertyChange]
                )
            if not x.wait_until(lambda: bool(x.cardinals(probe, "_NET_FRAME_EXTENTS")), ANSWER_S):
                raise EnvFailure(f"the window manager did not answer within {ANSWER_S:g} s")
        finally:
            with x.guarded():
                x.conn.core.DestroyWindow(probe)
                x.conn.flush()

    def ping(self, window: int | None, timeout: float) -> bool:
        """Wait until a window's program has handled every event it was sent so far.

        By ``_NET_WM_PING``: events arrive in order, so its answer comes after them. Returns
        whether it answered; ``False`` at once if it does not take pings (plain X programs).
        """
        if window is None or not self._takes_pings(window):
            return False
        protocol = self._x.atom("_NET_WM_PING")
        serial = next(self._serial)
        self._x.send_message(window, window, "WM_PROTOCOLS", protocol, serial, window, mask=0)
        return self._x.wait_until(lambda: self._ponged >= serial, timeout)

    def _takes_pings(self, window: int) -> bool:
        return self._x.atom("_NET_WM_PING") in self._x.cardinals(window, "WM_PROTOCOLS")

    def _take_pong(self, event: Any) -> None:
        if not isinstance(event, xcffib.xproto.ClientMessageEvent) or event.format != 32:
            return
        if event.type == self._x.atom("WM_PROTOCOLS"):
            protocol, serial = event.data.data32[:2]
            if protocol == self._x.atom("_NET_WM_PING"):
                self._ponged = max(self._ponged, serial)

    def _tell(self, window: int, name: str, *data: int) -> None:
        self._x.send_message(self._x.root, window, name, *data, mask=_TO_MANAGER)

    def _must_exist(self, window: int) -> None:
        if window not in self.managed():
            raise EnvFailure(f"there is no window {window}; open ones: {self.list()}")

    def _describe(self, window: int) -> Window | None:
        x = self._x
        with x.guarded():
            size = x.conn.core.GetGeometry(window)
            place = x.conn.core.TranslateCoordinates(window, x.root, 0, 0)
            try:
                geometry, origin = size.reply(), place.reply()
            except (xcffib.xproto.DrawableError, xcffib.xproto.WindowError):
                return None
        title = x.property(window, "_NET_WM_NAME") or x.property(window, "WM_NAME") or b""
        names = (x.property(window, "WM_CLASS") or b"").split(b"\0")
        pid = x.cardinals(window, "_NET_WM_PID")
        signed = struct.unpack(
            "=hh", struct.pack("=HH", origin.dst_x & 0xFFFF, origin.dst_y & 0xFFFF)
        )
        return Window(
            id=window,
            title=title.decode("utf-8", "replace"),
            wm_class=names[1].decode("utf-8", "replace") if len(names) > 1 else "",
            pid=pid[0] if pid else 0,
            x=signed[0],
            y=signed[1],
            width=geometry.width,
            height=geometry.height,
        )
