"""A guest at the other end of a stream of bytes: in a container, on another host, in a sandbox.

Few round trips are made: input goes out unasked for, and while the driver waits until the screen
is ready, the guest tells of itself what it sees. So a step takes two, however far the machine is:
one until the input is done, one until the wait begins; the screenshot has then come along.
"""

from __future__ import annotations

import contextlib
import socket
import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from legato.desktop.guest import wire
from legato.desktop.guest.client import REPLY_S, GuestClient, failure
from legato.desktop.guest.mux import Mux, Stream
from legato.desktop.guest.sockets import connect_unix
from legato.desktop.x11.connection import XConnection
from legato.desktop.x11.display import Display
from legato.desktop.x11.screen import to_rgb
from legato.errors import EnvFailure

LOOK_EVERY_S = 0.04
"""Time between two looks while waiting, in seconds."""
CONNECT_S = 5.0


class RemoteGuest(GuestClient):
    """The client of a guest behind a stream, which it owns."""

    def __init__(self, stream: Stream, *, deadline_s: float = REPLY_S) -> None:
        self._servers: dict[str, Path] = {}
        self._screen: RemoteScreen | None = None
        self._watch = 0
        """Number of the latest watch."""
        self._lost: list[str] | None = None
        """What the latest watch told of at its end, until someone asked."""
        self._mux = Mux(stream, self._open_channel, first=True)
        super().__init__(self._mux.main, deadline_s=deadline_s)

    def close(self) -> None:
        super().close()
        self._mux.close()

    def start_session(self, width: int, height: int, *, timeout: float) -> tuple[int, RemoteScreen]:
        seconds = timeout + REPLY_S
        self._screen = None
        self._call("session", seconds, width=width, height=height, timeout=timeout)
        with self._within("session", REPLY_S):
            x = self._mux.open("x")
        self._screen = RemoteScreen(self, width, height)
        return x.detach(), self._screen

    def signals(self, display: Display) -> RemoteSignals:
        if self._screen is None:
            raise EnvFailure("there is no session to watch")
        return RemoteSignals(self, self._screen)

    def expose(self, port: int, server: Path) -> None:
        if not server.is_socket():
            raise EnvFailure(f"there is no server to expose at {server}")
        self._servers[f"port {port}"] = server
        self._call("expose", REPLY_S, port=port)

    def clean(self) -> None:
        super().clean()
        self._servers.clear()
        self._lost = None

    def begin(self) -> None:
        super().begin()
        self._lost = None  # a watch of before

    def lost(self) -> list[str]:
        """Right after a watch this is known already."""
        lost, self._lost = self._lost, None
        return super().lost() if lost is None else lost

    def look(self) -> None:
        """Bring the screen up to now."""
        header, pixels, _ = self._call("look", REPLY_S)
        self._see(header, pixels)

    def watch(self) -> None:
        """From now on, until :meth:`unwatch`, the guest tells of itself; see :meth:`next_look`."""
        self._watch += 1
        with self._within("watch", REPLY_S) as deadline:
            order = {"op": "watch", "number": self._watch, "interval": LOOK_EVERY_S}
            wire.send(self._sock, order, deadline=deadline)

    def unwatch(self) -> None:
        with self._within("unwatch", REPLY_S) as deadline:
            wire.send(self._sock, {"op": "unwatch"}, deadline=deadline)

    def next_look(self) -> Look:
        """Wait for the guest's next look; the screen is then as it saw it."""
        while True:
            with self._within("watch", REPLY_S) as deadline:
                told, pixels, _ = wire.receive(self._sock, deadline=deadline)
            if told["watch"] == self._watch:
                break
            self._see(told, pixels)
        if "error" in told:
            raise failure("watch", told)
        self._see(told, pixels)
        self._lost = told["lost"]
        return Look(told["at"], told.get("seconds"), told["requests"])

    def _reply(self, deadline: float) -> tuple[dict[str, Any], bytes, list[int]]:
        while True:
            header, blob, fds = super()._reply(deadline)
            if "watch" not in header:
                return header, blob, fds
            self._see(header, blob)  # it was under way when the watch ended

    def _see(self, told: Mapping[str, Any], pixels: bytes) -> None:
        if self._screen is not None:
            self._screen.change(told.get("rects", []), pixels)

    def _open_channel(self, name: str) -> socket.socket:
        """What the guest opens are ways to the servers that were exposed to it."""
        if name not in self._servers:
            raise ConnectionRefusedError(name)
        return connect_unix(self._servers[name], CONNECT_S)

    def _why(self, e: Exception) -> str:
        return self._mux.reason or str(e)


@dataclass(frozen=True, slots=True)
class Look:
    """What the guest saw at one moment."""

    at: float
    """Seconds, by the guest's own clock."""
    busy_seconds: float | None
    """``None`` while the screen changes: nothing can be at rest then."""
    pending_requests: int


class RemoteScreen:
    """Implements :class:`~legato.desktop.x11.screen.Screen`: a copy, kept up by changes."""

    def __init__(self, guest: RemoteGuest, width: int, height: int) -> None:
        self._guest = guest
        self._pixels = np.zeros((height, width), np.uint32)

    def pixels(self, x: XConnection) -> np.ndarray:
        self._guest.look()
        return self._pixels

    def rgb(self, x: XConnection) -> np.ndarray:
        self._guest.look()
        return to_rgb(self._pixels)

    def last_rgb(self) -> np.ndarray:
        return to_rgb(self._pixels)

    @property
    def last(self) -> np.ndarray:
        """The screen of the last look."""
        return self._pixels

    def change(self, rects: list[list[int]], compressed: bytes) -> None:
        """Take over what :meth:`~legato.desktop.guest.frames.Frames.changes` told.

        Raises ``EnvFailure`` for what does not fit the screen.
        """
        if not rects:
            return
        size = 4 * sum(width * height for _, _, width, height in rects)
        try:
            raw = zlib.decompressobj().decompress(compressed, size)
            told = np.frombuffer(raw, np.dtype("<u4"))
            start = 0
            for left, top, width, height in rects:
                part = told[start : start + width * height].reshape(height, width)
                self._pixels[top : top + height, left : left + width] = part
                start += width * height
        except (ValueError, zlib.error) as e:
            raise EnvFailure(f"the guest told of a screen that is none: {e}") from e


class RemoteSignals:
    """Implements :class:`~legato.desktop.ready.Pushed`: the guest tells, we listen."""

    def __init__(self, guest: RemoteGuest, screen: RemoteScreen) -> None:
        self._guest = guest
        self._screen = screen
        self._look: Look | None = None

    @contextlib.contextmanager
    def pushed(self) -> Iterator[RemoteSignals]:
        self._guest.watch()
        try:
            self._look = self._guest.next_look()
            yield self
        finally:
            self._guest.unwatch()

    def now(self) -> float:
        return self._seen.at

    def wait(self, seconds: float) -> None:
        until = self._seen.at + seconds
        deadline = time.monotonic() + seconds + REPLY_S
        while self._seen.at < until and time.monotonic() < deadline:
            self._look = self._guest.next_look()

    def frame(self) -> np.ndarray:
        return self._screen.last

    def busy_seconds(self) -> float:
        busy = self._seen.busy_seconds
        return self._guest.busy_seconds() if busy is None else busy

    def pending_requests(self) -> int:
        return self._seen.pending_requests

    @property
    def _seen(self) -> Look:
        if self._look is None:
            raise EnvFailure("the guest is not being watched")
        return self._look
