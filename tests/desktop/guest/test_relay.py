"""What a relay knows of unanswered requests."""

from __future__ import annotations

import os
import selectors
import socket
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
            self._port = probe.getsockname()[1]
        self.relay = Relay(self._selector, self._port, HeldServer(path))

    def connect(self) -> tuple[socket.socket, socket.socket]:
        client = socket.create_connection(("127.0.0.1", self._port), timeout=5.0)
        self.turn()
        server, _ = self._server.accept()
        return client, server

    def turn(self) -> None:
        while ready := self._selector.select(0.2):
            for key, _ in ready:
                if self._selector.get_map().get(key.fileobj) is key:
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


def _later(clock: Callable[[], float], seconds: float) -> Callable[[], float]:
    return lambda: clock() + seconds
