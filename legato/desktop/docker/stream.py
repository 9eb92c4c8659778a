"""The attached standard streams of a container, as one stream of bytes each way.

What comes is framed by the engine (Docker Engine API, "Attach to a container", stream format):
one byte of kind (1: output, 2: errors), three of nothing, four of length, big-endian; then the
bytes. What goes is not.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import struct
import threading
from typing import Any

from legato.desktop.guest.mux import CHUNK, SILENCE_S

ERRORS_KEPT = 4096

_HEAD = struct.Struct(">BxxxI")
_OUTPUT, _ERRORS = 1, 2


class AttachedStream:
    """Implements :class:`~legato.desktop.guest.mux.Stream`; ``response`` is what docker-py's
    ``attach_socket`` returns, before anything came."""

    def __init__(self, response: Any) -> None:
        self._response = response  # it owns the connection
        self._sock: socket.socket = getattr(response, "_sock", response)
        self._sock.setblocking(False)
        self._lock = threading.Lock()
        """A TLS connection is not to be read and written at once."""
        self._left = 0
        self._kind = _OUTPUT
        self._data = bytearray()
        self._said = bytearray()

    @property
    def errors(self) -> str:
        """The end of what the container's program complained about."""
        return bytes(self._said).decode("utf-8", "replace").strip()

    def read(self) -> bytes:
        while True:
            if self._left and self._data:
                part = bytes(self._data[: self._left])
                del self._data[: len(part)]
                self._left -= len(part)
                if self._kind == _OUTPUT:
                    return part
                self._said += part
                del self._said[:-ERRORS_KEPT]
            elif not self._left and len(self._data) >= _HEAD.size:
                self._kind, self._left = _HEAD.unpack_from(self._data)
                del self._data[: _HEAD.size]
            else:
                chunk = self._receive()
                if not chunk:
                    return b""
                self._data += chunk

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                with self._lock:
                    sent = self._sock.send(view)
            except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError) as e:
                self._wait(_wanted(e, select.POLLOUT))
            else:
                view = view[sent:]

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def _receive(self) -> bytes:
        while True:
            try:
                with self._lock:
                    return self._sock.recv(CHUNK)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError) as e:
                self._wait(_wanted(e, select.POLLIN))

    def _wait(self, event: int) -> None:
        poll = select.poll()
        poll.register(self._sock, event)
        if not poll.poll(SILENCE_S * 1000):
            raise TimeoutError(f"the engine was silent for {SILENCE_S:g} s")


def _wanted(e: OSError, otherwise: int) -> int:
    if isinstance(e, ssl.SSLWantReadError):
        return select.POLLIN
    return select.POLLOUT if isinstance(e, ssl.SSLWantWriteError) else otherwise
