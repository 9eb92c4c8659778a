"""Many connections over one stream: order, back-pressure, half-closes, and its end."""

from __future__ import annotations

import select
import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest

from legato.desktop.guest.mux import WINDOW, Mux

LONG_S = 30.0


class Wire:
    """A stream over one end of a socket pair."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def read(self) -> bytes:
        return self._sock.recv(65536)

    def write(self, data: bytes) -> None:
        self._sock.sendall(data)

    def close(self) -> None:
        self._sock.shutdown(socket.SHUT_RDWR)


@dataclass
class Pair:
    """Two ends; what the near one opens comes out of ``accepted``."""

    near: Mux = field(init=False)
    far: Mux = field(init=False)
    accepted: list[socket.socket] = field(default_factory=list)
    came: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        near, far = socket.socketpair()
        self.near = Mux(Wire(near), self._accept, first=True)
        self.far = Mux(Wire(far), self._accept, first=False)

    def open(self, name: str = "any") -> tuple[socket.socket, socket.socket]:
        self.came.clear()
        ours = self.near.open(name)
        assert self.came.wait(LONG_S)
        theirs = self.accepted[-1]
        for end in (ours, theirs):
            end.settimeout(LONG_S)
        return ours, theirs

    def _accept(self, name: str) -> socket.socket:
        if name == "nowhere":
            raise ConnectionRefusedError(name)
        ours, users = socket.socketpair()
        self.accepted.append(users)
        self.came.set()
        return ours


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    pair.far.close()
    pair.near.close()


def everything(sock: socket.socket) -> bytes:
    data = bytearray()
    while chunk := sock.recv(65536):
        data += chunk
    return bytes(data)


def test_the_first_channel_is_there(pair: Pair) -> None:
    pair.near.main.sendall(b"ping")
    pair.far.main.settimeout(LONG_S)
    assert pair.far.main.recv(10) == b"ping"


def test_much_both_ways_at_once_and_half_closed(pair: Pair) -> None:
    data = np.random.default_rng(1).bytes(9 * WINDOW + 77)
    got: dict[str, bytes] = {}
    ours, theirs = pair.open()

    def send(sock: socket.socket) -> None:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)

    def receive(name: str, sock: socket.socket) -> None:
        got[name] = everything(sock)

    threads = [threading.Thread(target=send, args=(s,)) for s in (ours, theirs)]
    threads += [threading.Thread(target=receive, args=a) for a in (("a", ours), ("b", theirs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG_S)
    assert got == {"a": data, "b": data}


def test_a_channel_that_is_not_read_holds_up_no_other(pair: Pair) -> None:
    clogged, _unread = pair.open()
    clogged.setblocking(False)
    sent = 0
    while sent < 100 * WINDOW and _writable(clogged):
        sent += clogged.send(bytes(65536))
    ours, theirs = pair.open()
    theirs.sendall(b"through")
    assert ours.recv(10) == b"through"
    assert sent < 10 * WINDOW


def _writable(sock: socket.socket) -> bool:
    return bool(select.select([], [sock], [], 0.5)[1])


def test_a_name_that_leads_nowhere_is_closed(pair: Pair) -> None:
    refused = pair.near.open("nowhere")
    refused.settimeout(LONG_S)
    assert refused.recv(10) == b""


def test_a_closed_end_is_seen_at_the_other(pair: Pair) -> None:
    ours, theirs = pair.open()
    theirs.sendall(b"last")
    theirs.close()
    assert everything(ours) == b"last"


def test_when_the_stream_ends_so_does_everything(pair: Pair) -> None:
    ours, _ = pair.open()
    pair.far.close()
    assert ours.recv(10) == b""
    pair.near.main.settimeout(LONG_S)
    assert pair.near.main.recv(10) == b""
    with pytest.raises(ConnectionError, match="has ended"):
        pair.near.open("any")


@pytest.mark.parametrize("garbage", [b"HTTP/1.1 200 OK\r\n", struct.pack(">BII", 1, 0, 2**30)])
def test_what_is_no_frame_ends_it(garbage: bytes) -> None:
    near, far = socket.socketpair()
    far.sendall(garbage)
    mux = Mux(Wire(near), lambda name: socket.socket(), first=True)
    mux.main.settimeout(LONG_S)
    assert mux.main.recv(1) == b""
    assert "no frame" in mux.reason
    far.close()
