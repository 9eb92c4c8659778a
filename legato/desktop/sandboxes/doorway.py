"""Runs inside a sandbox, at a port: one WebSocket leads to the standard streams of one command.

Of RFC 6455 it is the server's side, for one client. What comes in binary messages is the
command's input, its output goes out in binary messages, and its complaints in text messages.
The client shows the secret that is in the environment; anyone else is turned away. The command
ends with the connection, and the connection with the command.

Its arguments are ``PORT PROGRAM [ARG...]``. It returns once the port is open, and goes on behind.
A file of its own, of the standard library only: its text is all that is sent.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from typing import BinaryIO

SECRET = "LEGATO_DOOR"
"""Of the environment; also, as a header, ``x-legato-door``."""
WAIT_S = 60.0
"""Nobody comes for so long: close."""
HEAD_S = 10.0
MAX_HEAD = 2**16
CHUNK = 2**16

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Door:
    """One connection that was let in."""

    def __init__(self, connection: socket.socket, early: bytes) -> None:
        self._connection, self._data = connection, bytearray(early)
        self._lock = threading.Lock()

    def send(self, kind: int, payload: bytes) -> None:
        size = len(payload)
        if size < 126:
            head = struct.pack(">BB", 0x80 | kind, size)
        elif size < 2**16:
            head = struct.pack(">BBH", 0x80 | kind, 126, size)
        else:
            head = struct.pack(">BBQ", 0x80 | kind, 127, size)
        with self._lock:
            self._connection.sendall(head + payload)

    def read(self) -> bytes:
        """Some bytes of the client's; ``b""`` once there will be no more."""
        while True:
            first, second = self._take(2)
            kind, size = first & 15, second & 127
            if size == 126:
                (size,) = struct.unpack(">H", self._take(2))
            elif size == 127:
                (size,) = struct.unpack(">Q", self._take(8))
            mask = self._take(4) if second & 128 else bytes(4)
            payload = _unmasked(self._take(size), mask)
            if kind == CLOSE:
                return b""
            if kind == PING:
                self.send(PONG, payload)
            elif kind != PONG and payload:
                return payload  # the limits of messages mean nothing here

    def _take(self, count: int) -> bytes:
        while len(self._data) < count:
            chunk = self._connection.recv(CHUNK)
            if not chunk:
                raise ConnectionError("the client is gone")
            self._data += chunk
        taken = bytes(self._data[:count])
        del self._data[:count]
        return taken


def admit(listener: socket.socket, secret: str) -> Door:
    """Wait for the client that knows the secret. Raises ``TimeoutError``."""
    while True:
        connection, _ = listener.accept()
        connection.settimeout(HEAD_S)
        try:
            head = b""
            while b"\r\n\r\n" not in head and len(head) < MAX_HEAD:
                chunk = connection.recv(CHUNK)
                if not chunk:
                    raise ConnectionError("the client is gone")
                head += chunk
            head, _, early = head.partition(b"\r\n\r\n")
            headers = _headers(head)
            if hmac.compare_digest(headers.get(b"x-legato-door", b""), secret.encode()):
                connection.sendall(_accepting(headers[b"sec-websocket-key"]))
                connection.settimeout(None)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return Door(connection, early)
            connection.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
        except (OSError, KeyError):
            pass  # whoever it was, it was not our client
        connection.close()


def serve(door: Door, argv: list[str]) -> None:
    """Run the command until it or the connection ends."""
    pipe = subprocess.PIPE
    command = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)
    assert command.stdout is not None
    assert command.stderr is not None
    said = [
        threading.Thread(target=_tell, args=(door, kind, source), daemon=True)
        for kind, source in ((BINARY, command.stdout), (TEXT, command.stderr))
    ]
    hear = threading.Thread(target=_hear, args=(door, command), daemon=True)
    for thread in (*said, hear):
        thread.start()
    command.wait()
    for thread in said:
        thread.join(HEAD_S)
    with contextlib.suppress(OSError):
        door.send(CLOSE, struct.pack(">H", 1000))


def _tell(door: Door, kind: int, source: BinaryIO) -> None:
    with contextlib.suppress(OSError):
        while data := os.read(source.fileno(), CHUNK):
            # A text message must be UTF-8.
            door.send(kind, data.decode("utf-8", "replace").encode() if kind == TEXT else data)


def _hear(door: Door, command: subprocess.Popen[bytes]) -> None:
    assert command.stdin is not None
    with contextlib.suppress(OSError):
        while data := door.read():
            view = memoryview(data)
            while view:
                view = view[os.write(command.stdin.fileno(), view) :]
    with contextlib.suppress(OSError):
        os.killpg(command.pid, signal.SIGKILL)


def _headers(head: bytes) -> dict[bytes, bytes]:
    lines = head.split(b"\r\n")[1:]
    pairs = (line.partition(b":") for line in lines)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


def _accepting(key: bytes) -> bytes:
    accept = base64.b64encode(hashlib.sha1(key + _GUID).digest())
    head = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    return head + b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n"


def _unmasked(payload: bytes, mask: bytes) -> bytes:
    size = len(payload)
    pattern = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(payload, "big") ^ int.from_bytes(pattern, "big")).to_bytes(size, "big")


def main() -> None:
    port, *argv = sys.argv[1:]
    secret = os.environ.pop(SECRET)
    listener = socket.create_server(("", int(port)))
    listener.settimeout(WAIT_S)
    if os.fork():
        os._exit(0)
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(null, fd)
    try:
        door = admit(listener, secret)
        listener.close()
        serve(door, argv)
    finally:
        os._exit(0)


if __name__ == "__main__":
    main()
