"""A connection to an X server on which no call waits for ever.

XCB's own waits have no deadline, and a server can hang at any moment (a stopped process, a
client that grabbed it). Here every wait is a ``poll`` with one.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, cast

import xcffib
import xcffib.xproto
import xcffib.xtest

from legato.errors import EnvFailure

_xcb: Any = xcffib
"""xcffib, of which little has types."""

REPLY_S = 10.0
"""Deadline of a round trip, in seconds."""


class _Connection(xcffib.Connection):
    """xcffib's connection, but waiting for a reply ends at a deadline."""

    poll: select.poll

    def wait_for_reply(self, sequence: int) -> Any:
        ffi, lib, me = _xcb.ffi, _xcb.lib, cast(Any, self)
        reply_p = ffi.new("void **")
        error_p = ffi.new("xcb_generic_error_t **")
        lib.xcb_flush(me._conn)
        deadline = time.monotonic() + REPLY_S
        while not lib.xcb_poll_for_reply(me._conn, sequence, reply_p, error_p):
            me.invalid()
            left = deadline - time.monotonic()
            if left <= 0:
                raise EnvFailure(f"the X server did not answer in {REPLY_S:g} s")
            self.poll.poll(left * 1000)
        me.invalid()
        try:
            me._process_error(error_p[0])
        finally:
            if error_p[0] != ffi.NULL:
                _xcb.c_free(error_p[0])
        if reply_p[0] == ffi.NULL:
            raise xcffib.XcffibException(f"no reply to request {sequence}")
        data = ffi.gc(reply_p[0], _xcb.c_free)
        length = ffi.cast("xcb_generic_reply_t *", data).length
        return _xcb.CffiUnpacker(data, known_max=32 + length * 4)


class XConnection:
    """One client of an X server; used from one thread at a time, but for :meth:`cut`.

    ``fd`` is a connected socket on which nothing was said yet; it is owned from here on. Methods
    raise ``EnvFailure`` when the server is gone or does not answer.
    """

    def __init__(self, fd: int, *, deadline_s: float = REPLY_S) -> None:
        self._socket = socket.socket(fileno=os.dup(fd))
        # XCB's greeting cannot be polled: cut the line instead if it takes too long.
        watchdog = threading.Timer(deadline_s, self.cut)
        watchdog.start()
        try:
            connect: Any = _Connection
            self.conn = connect(fd=fd)
        except xcffib.XcffibException as e:
            self._socket.close()
            raise EnvFailure(f"the X server did not let us in: {e}") from e
        finally:
            watchdog.cancel()
        self.conn.poll = select.poll()
        self.conn.poll.register(self._socket, select.POLLIN)
        screen = self.conn.setup.roots[0]
        self.root: int = screen.root
        self.width: int = screen.width_in_pixels
        self.height: int = screen.height_in_pixels
        self.xtest = self.conn(xcffib.xtest.key)
        self._atoms: dict[str, int] = {}
        self.handlers: list[Callable[[Any], None]] = []
        """Called with every event while we wait."""
        mask = xcffib.xproto.EventMask
        events = mask.PropertyChange | mask.SubstructureNotify
        with self.guarded():
            self.conn.core.ChangeWindowAttributes(self.root, xcffib.xproto.CW.EventMask, [events])
            self.sync()

    def cut(self) -> None:
        """End the connection, from any thread; a call that waits on it fails at once."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.cut()
        self.conn.disconnect()
        self._socket.close()

    @contextlib.contextmanager
    def guarded(self) -> Iterator[None]:
        """Turn what xcffib raises into ``EnvFailure``."""
        try:
            yield
        except (xcffib.XcffibException, OSError) as e:
            raise EnvFailure(f"the X server is gone or refused a request: {e!r}") from e

    def sync(self) -> None:
        """Return once the server has done everything sent so far."""
        with self.guarded():
            self.conn.core.GetInputFocus().reply()

    def fake_input(
        self, kind: int, detail: int, x: int = 0, y: int = 0, *, after_ms: int = 0
    ) -> None:
        """Queue an input event (XTEST FakeInput): event number, key or button, point.

        The server lets ``after_ms`` milliseconds pass before it.
        """
        with self.guarded():
            self.xtest.FakeInput(kind, detail, after_ms, self.root, x, y, 0)

    def set_background(self, color: int) -> None:
        """Paint the root window in one colour, ``0xRRGGBB``."""
        with self.guarded():
            self.conn.core.ChangeWindowAttributes(self.root, xcffib.xproto.CW.BackPixel, [color])
            self.conn.core.ClearArea(False, self.root, 0, 0, 0, 0)
        self.sync()

    @contextlib.contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Let no other client draw meanwhile; keep it short."""
        with self.guarded():
            self.conn.core.GrabServer()
        self.sync()
        try:
            yield
        finally:
            with self.guarded():
                self.conn.core.UngrabServer()
                self.conn.flush()

    def atom(self, name: str) -> int:
        if name not in self._atoms:
            with self.guarded():
                self._atoms[name] = self.conn.core.InternAtom(False, len(name), name).reply().atom
        return self._atoms[name]

    def property(self, window: int, name: str, *, words: int = 4096) -> bytes | None:
        """Raw value of a property (host byte order), ``None`` if the window or it is gone."""
        cookie = self.conn.core.GetProperty(False, window, self.atom(name), 0, 0, words)
        with self.guarded():
            try:
                reply = cookie.reply()
            except xcffib.xproto.WindowError:
                return None
        return bytes(reply.value.raw) if reply.format else None

    def cardinals(self, window: int, name: str) -> tuple[int, ...]:
        """A property of 32-bit numbers; empty if there is none."""
        raw = self.property(window, name) or b""
        return struct.unpack(f"={len(raw) // 4}I", raw[: len(raw) // 4 * 4])

    def send_message(self, to: int, window: int, name: str, *data: int, mask: int) -> None:
        """Send a ClientMessage of type ``name`` about ``window`` to window ``to``."""
        event = struct.pack(
            "=BBHII5I", 33, 32, 0, window, self.atom(name), *data, *[0] * (5 - len(data))
        )
        with self.guarded():
            self.conn.core.SendEvent(False, to, mask, event)
            self.conn.flush()

    def wait_until(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Wait until ``condition()``, tried again after every event; whether it came true."""
        deadline = time.monotonic() + timeout
        while True:
            if condition():
                return True
            while not self.drain():
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self.conn.poll.poll(left * 1000)

    def drain(self) -> bool:
        """Hand events that have come to the handlers; whether there were any."""
        found = False
        with self.guarded():
            while True:
                try:
                    event = self.conn.poll_for_event()
                except xcffib.Error:
                    found = True  # a window we asked something of is gone, which is its right
                    continue
                if event is None:
                    return found
                found = True
                for handler in self.handlers:
                    handler(event)
