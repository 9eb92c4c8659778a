"""A door from the machine's loopback to one server outside: bytes in, bytes out.

The machine has no network, and the agent has only the TCP port: how the server is reached from
here (:class:`Server`) is out of its reach.
"""

from __future__ import annotations

import math
import os
import select
import selectors
import socket
import time
from typing import Protocol

CHUNK = 65536
LONG_S = 5.0
"""A question unanswered for longer, in seconds, is a long poll or a socket, not a page loading."""


class Server(Protocol):
    """A way to the server outside."""

    def connect(self) -> socket.socket:
        """A new connection. Raises ``OSError``."""
        ...

    def close(self) -> None: ...


class HeldServer:
    """A server by a descriptor of its unix socket, which the driver handed in and we own.

    Connecting through ``/proc/self/fd`` reaches it although its path does not exist in here. The
    agent cannot open our descriptors.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def connect(self) -> socket.socket:
        outside = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            outside.settimeout(1.0)  # it waits only while the server's backlog is full
            outside.connect(f"/proc/self/fd/{self._fd}")
        except OSError:
            outside.close()
            raise
        return outside

    def close(self) -> None:
        os.close(self._fd)


class Relay:
    """Listens on ``127.0.0.1:port`` until closed; ``server`` is owned, unless this raises."""

    def __init__(self, selector: selectors.BaseSelector, port: int, server: Server) -> None:
        self._selector = selector
        self._server = server
        self._pairs: set[_Pair] = set()
        self._listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._listener.bind(("127.0.0.1", port))
            self._listener.listen(128)
            self._listener.setblocking(False)
        except BaseException:
            self._listener.close()
            raise
        selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def unanswered(self) -> int:
        """Connections on which the client spoke last, and not long ago.

        What has been said by now is carried on first: this may be asked before the loop gets to it.
        """
        self._catch_up()
        now = time.monotonic()
        return sum(now - pair.asked_at < LONG_S for pair in self._pairs)

    def flush(self, until: float) -> None:
        """Carry on what clients have said, and wait for the answers: for when they are stopped.

        Returns when every whole question has its answer, or at ``until`` (monotonic seconds): a
        question that was cut short never gets one.
        """
        while True:
            self._catch_up()
            waiting = [pair.server for pair in self._pairs if pair.asked_at > -math.inf]
            left = until - time.monotonic()
            if not waiting or left <= 0 or not select.select(waiting, [], [], left)[0]:
                return

    def _catch_up(self) -> None:
        while self._accept():
            continue
        for pair in list(self._pairs):
            pair.carry()

    def close(self) -> None:
        self._selector.unregister(self._listener)
        self._listener.close()
        self._server.close()
        for pair in list(self._pairs):
            pair.close()

    def _accept(self) -> bool:
        """Take one client; ``False`` if none waits."""
        try:
            inside, _ = self._listener.accept()
        except OSError:
            return False  # or it gave up first
        try:
            outside = self._server.connect()
        except OSError:
            inside.close()  # the server is gone: the page sees a closed connection
            return True
        self._pairs.add(_Pair(self._selector, inside, outside, self._pairs))
        return True


class _Pair:
    """Two connected sockets; what one says the other hears, half-closes included."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        inside: socket.socket,
        outside: socket.socket,
        registry: set[_Pair],
    ) -> None:
        self._selector = selector
        self._registry = registry
        self._ends = (_End(inside), _End(outside))
        self.asked_at = -math.inf
        """When the client spoke, unless the server has spoken since."""
        for mine, other in (self._ends, self._ends[::-1]):
            mine.sock.setblocking(False)
            mine.handler = lambda mine=mine, other=other: self._pump(mine, other)
            selector.register(mine.sock, selectors.EVENT_READ, mine.handler)

    @property
    def server(self) -> socket.socket:
        return self._ends[1].sock

    def carry(self) -> None:
        """What either side has said so far, to the other."""
        for mine, other in (self._ends, self._ends[::-1]):
            if self in self._registry:
                self._pump(mine, other)

    def close(self) -> None:
        self._registry.discard(self)
        for end in self._ends:
            if end.events:
                self._selector.unregister(end.sock)
                end.events = 0
            end.sock.close()

    def _pump(self, mine: _End, other: _End) -> None:
        try:
            if mine.pending:
                del mine.pending[: _try_send(mine.sock, mine.pending)]
            if not mine.finished and not other.pending:
                chunk = _try_recv(mine.sock)
                if chunk:
                    self.asked_at = time.monotonic() if mine is self._ends[0] else -math.inf
                    sent = _try_send(other.sock, chunk)
                    other.pending += chunk[sent:]
                elif chunk == b"":
                    mine.finished = True
                    self.asked_at = -math.inf
            for a, b in (self._ends, self._ends[::-1]):
                if a.finished and not b.pending and not b.shut:
                    b.sock.shutdown(socket.SHUT_WR)
                    b.shut = True
        except OSError:
            self.close()
            return
        if all(end.shut for end in self._ends):
            self.close()
            return
        for a, b in (self._ends, self._ends[::-1]):
            self._watch(a, reading=not a.finished and not b.pending)

    def _watch(self, end: _End, *, reading: bool) -> None:
        events = selectors.EVENT_READ if reading else 0
        if end.pending:
            events |= selectors.EVENT_WRITE
        if events == end.events:
            return
        if not events:
            self._selector.unregister(end.sock)
        elif not end.events:
            self._selector.register(end.sock, events, end.handler)
        else:
            self._selector.modify(end.sock, events, end.handler)
        end.events = events


class _End:
    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.pending = bytearray()
        """Read from the other end, not yet written here."""
        self.finished = False
        """Has said all it will say."""
        self.shut = False
        """Has been told that the other end is finished."""
        self.events = selectors.EVENT_READ
        self.handler: object = None


def _try_recv(sock: socket.socket) -> bytes | None:
    try:
        return sock.recv(CHUNK)
    except BlockingIOError:
        return None


def _try_send(sock: socket.socket, data: bytes | bytearray) -> int:
    try:
        return sock.send(data)
    except BlockingIOError:
        return 0
