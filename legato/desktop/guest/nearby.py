"""A guest on this machine, whose descriptors can be passed: memory and sockets are shared."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from legato.desktop.guest.client import REPLY_S, GuestClient
from legato.desktop.guest.sockets import connect_unix
from legato.desktop.x11.display import Display
from legato.desktop.x11.framebuffer import Framebuffer
from legato.desktop.x11.screen import Screen
from legato.errors import EnvFailure


class NearbyGuest(GuestClient):
    """The client of a guest that listens on a unix socket."""

    def __init__(self, path: Path, *, deadline_s: float = REPLY_S) -> None:
        try:
            sock = connect_unix(path, deadline_s)
        except OSError as e:
            raise EnvFailure(f"the guest program does not answer: {e}") from e
        super().__init__(sock, deadline_s=deadline_s)

    def start_session(self, width: int, height: int, *, timeout: float) -> tuple[int, Screen]:
        _, _, fds = self._call(
            "session", timeout + REPLY_S, width=width, height=height, timeout=timeout
        )
        if len(fds) != 2:
            raise EnvFailure(f"the guest sent {len(fds)} descriptors instead of 2")
        try:
            return fds[0], Framebuffer(fds[1])
        except EnvFailure:
            os.close(fds[0])
            raise

    def signals(self, display: Display) -> NearbySignals:
        return NearbySignals(self, display)

    def expose(self, port: int, server: Path) -> None:
        """The socket is made writable for every user, since the guest's is not ours; its
        directory decides who else can reach it.
        """
        try:
            server.chmod(0o666)
            fd = os.open(server, os.O_PATH | os.O_CLOEXEC)
        except OSError as e:
            raise EnvFailure(f"there is no server to expose: {e}") from e
        try:
            self._call("expose", REPLY_S, b"", [fd], port=port)
        finally:
            os.close(fd)


class NearbySignals:
    """Implements :class:`~legato.desktop.ready.Signals`: everything is asked for when wanted."""

    def __init__(self, guest: GuestClient, display: Display) -> None:
        self._guest = guest
        self._display = display

    def frame(self) -> np.ndarray:
        return self._display.pixels()

    def busy_seconds(self) -> float:
        return self._guest.busy_seconds()

    def pending_requests(self) -> int:
        return self._guest.pending_requests()
