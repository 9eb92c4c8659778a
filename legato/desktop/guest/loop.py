"""The loop of the guest program: who asks, in which order they are answered, and what falls due.

Every request has one reply, in order, on the same connection. ``{"error": ..., "kind": ...}`` is
the reply to a request that failed; ``kind`` tells the client which error to raise.
"""

from __future__ import annotations

import os
import selectors
import socket
import struct
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from . import wire
from .mux import Mux, Pipes

MESSAGE_S = 30.0
"""The driver sends a message in one go; one that takes longer is not the driver's."""


@dataclass
class Request:
    """One message of the driver; descriptors belong to the handler, unless it raises."""

    connection: socket.socket
    args: dict[str, Any]
    blob: bytes
    fds: list[int]


@dataclass
class Reply:
    """What goes back; the descriptors are closed once sent."""

    header: dict[str, Any] = field(default_factory=dict)
    blob: bytes = b""
    fds: list[int] = field(default_factory=list)


def failed(e: Exception) -> Reply:
    return Reply({"error": str(e) or repr(e), "kind": type(e).__name__})


class Loop:
    """Serves the driver; children and relays wait in its selector, too."""

    def __init__(self, answer: Callable[[str, Request], Reply | None]) -> None:
        """``answer(op, request)`` gives the reply, or ``None`` if that follows later."""
        self._answer = answer
        self.selector = selectors.DefaultSelector()
        self.timers: dict[int, tuple[float, Callable[[], None]]] = {}
        """What is to be done when, by the pid of its process or another number."""
        self.mux: Mux | None = None
        """Set when the driver is on another machine, and no descriptors can be passed."""

    def listen(self, listener: socket.socket, owner_fd: int | None) -> None:
        """Serve who connects; exit when the owner's end of ``owner_fd`` is closed."""
        self.selector.register(listener, selectors.EVENT_READ, lambda: self._accept(listener))
        if owner_fd is not None:
            self.selector.register(owner_fd, selectors.EVENT_READ, sys.exit)

    def join(self, stream: Pipes, open_channel: Callable[[str], socket.socket]) -> None:
        """Serve the driver at the other end of a stream; exit when it is gone."""
        self.mux = Mux(stream, open_channel, first=False)
        self._serve_connection(self.mux.main)

    def serve(self) -> None:
        """Run for ever."""
        while True:
            now = time.monotonic()
            for pid, (due, action) in list(self.timers.items()):
                if due <= now:
                    del self.timers[pid]
                    action()
            next_due = min((t for t, _ in self.timers.values()), default=None)
            wait = None if next_due is None else max(0.0, next_due - now)
            for key, _ in self.selector.select(wait):
                # An earlier one of this round may have closed it.
                if self.selector.get_map().get(key.fd) is key:
                    key.data()

    def _accept(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        credentials = connection.getsockopt(
            socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")
        )
        # A peer from outside has no pid in here. Anyone else is a program of the agent.
        if struct.unpack("3i", credentials)[0] != 0:
            connection.close()
            return
        self._serve_connection(connection)

    def _serve_connection(self, connection: socket.socket) -> None:
        self.selector.register(connection, selectors.EVENT_READ, lambda: self._request(connection))

    def _request(self, connection: socket.socket) -> None:
        try:
            args, blob, fds = wire.receive(connection, deadline=time.monotonic() + MESSAGE_S)
        except (OSError, ValueError):
            self._hang_up(connection)
            return
        try:
            reply = self._answer(args.pop("op"), Request(connection, args, blob, fds))
        except (OSError, ValueError, RuntimeError) as e:
            for fd in fds:
                os.close(fd)
            reply = failed(e)
        if reply is not None:
            self.reply(connection, reply)

    def reply(self, connection: socket.socket, reply: Reply) -> None:
        """Send what was asked for; its descriptors are closed."""
        deadline = time.monotonic() + MESSAGE_S
        try:
            wire.send(connection, reply.header, reply.blob, reply.fds, deadline=deadline)
        except OSError:
            self._hang_up(connection)
        finally:
            for fd in reply.fds:
                os.close(fd)

    def _hang_up(self, connection: socket.socket) -> None:
        try:
            self.selector.unregister(connection)
        except (KeyError, ValueError):
            return  # already hung up
        connection.close()
        if self.mux is not None:
            sys.exit()
