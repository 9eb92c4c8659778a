"""What a relay knows of unanswered requests."""

from __future__ import annotations

import math
import os
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from legato.desktop.guest import relay
from legato.desktop.guest.relay import HeldServer, Relay


class Door:
    """A relay in a loop of its own, a client inside and a server outside."""

    def __init__(self, directory: Path) -> None:
        self._selector = selectors.DefaultSelector()
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(directory / "server"))
        self._server.listen()
        path = os.open(directory / "server", os.O_PATH | os.O_CLOEXEC)
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.address: tuple[str, int] = probe.getsockname()
        self.relay = Relay(self._selector, self.address[1], HeldServer(path))

    def connect(self) -> tuple[socket.socket, socket.socket]:
        client = socket.create_connection(self.address, timeout=5.0)
        self.turn()
        server, _ = self._server.accept()
        return client, server

    def turn(self) -> None:
        while ready := self._selector.select(0.2):
            for key, _ in ready:
                if self._selector.get_map().get(key.fd) is key:
                    key.data()

    def close(self) -> None:
        self.relay.close()
        self._server.close()
        self._selector.close()


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    door = Door(tmp_path)
    yield door
    door.close()


def test_a_question_counts_until_it_is_answered(door: Door) -> None:
    client, server = door.connect()
    with client, server:
        assert door.relay.unanswered() == 0
        client.sendall(b"GET / HTTP/1.1\r\n\r\n")
        door.turn()
        assert door.relay.unanswered() == 1
        server.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        door.turn()
        assert door.relay.unanswered() == 0


def test_a_question_counts_before_the_loop_gets_to_it(door: Door) -> None:
    with socket.create_connection(door.address, timeout=5.0) as client:
        assert door.relay.unanswered() == 0
        client.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert door.relay.unanswered() == 1


def test_a_client_that_leaves_asks_nothing(door: Door) -> None:
    client, server = door.connect()
    with server:
        client.sendall(b"GET / HTTP/1.1\r\n\r\n")
        door.turn()
        client.close()
        door.turn()
        assert door.relay.unanswered() == 0


def test_a_long_poll_stops_counting(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    client, server = door.connect()
    with client, server:
        client.sendall(b"GET / HTTP/1.1\r\n\r\n")
        door.turn()
        monkeypatch.setattr(relay.time, "monotonic", _later(relay.time.monotonic, relay.LONG_S))
        assert door.relay.unanswered() == 0


def test_what_was_asked_is_answered_before_a_flush_ends(door: Door) -> None:
    """Nothing of it had reached the server yet; the client itself does not do anything any more."""
    client, server = door.connect()
    with client, server:
        client.sendall(b"POST / HTTP/1.1\r\n\r\n")
        heard: list[bytes] = []

        def serve() -> None:
            heard.append(server.recv(100))
            server.sendall(b"HTTP/1.1 200 OK\r\n\r\n")

        serving = threading.Thread(target=serve)
        serving.start()
        door.relay.flush(time.monotonic() + 30.0)
        assert door.relay.unanswered() == 0
        serving.join(30.0)
        assert heard == [b"POST / HTTP/1.1\r\n\r\n"]
        assert client.recv(100) == b"HTTP/1.1 200 OK\r\n\r\n"


def test_a_flush_does_not_wait_for_ever_or_for_nothing(door: Door) -> None:
    door.relay.flush(math.inf)
    client, server = door.connect()
    with client, server:
        door.relay.flush(math.inf)
        client.sendall(b"POST / HT")
        door.relay.flush(time.monotonic() + 0.05)
        assert server.recv(100) == b"POST / HT"
        client.close()
        door.relay.flush(math.inf)
        assert server.recv(100) == b""


def _later(clock: Callable[[], float], seconds: float) -> Callable[[], float]:
    return lambda: clock() + seconds
