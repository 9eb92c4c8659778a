"""Streams for providers that forward a port of a sandbox but do not offer a raw stream.

The providers' own streams are for people at terminals: text, decoded and encoded on the way, and
input that costs a round trip a piece. A forwarded port takes a WebSocket, which has neither.
"""

from __future__ import annotations

import contextlib
import logging
import random
import secrets
import socket
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from websockets.exceptions import ConnectionClosed, InvalidHandshake, WebSocketException
from websockets.sync.client import ClientConnection, connect

from legato.desktop.guest.mux import SILENCE_S, Stream
from legato.desktop.sandboxes import doorway
from legato.desktop.sandboxes.contract import Sandboxes
from legato.errors import EnvFailure

PORTS = range(4000, 9000)
"""Ports that providers forward and do not use themselves."""
OPEN_S = 30.0
CLOSE_S = 2.0
ERRORS_KEPT = 4096

_quiet = logging.getLogger(f"{__name__}.websocket")
_quiet.setLevel(logging.WARNING)
"""Its debugging output would have the secrets of the headers."""

_DOORWAY = Path(doorway.__file__).read_text()


@dataclass(frozen=True, slots=True)
class Address:
    """Where a port of a sandbox is reached from outside."""

    url: str
    """``ws://`` or ``wss://``."""
    headers: Mapping[str, str] = field(repr=False, default_factory=dict)
    """What the provider wants to see, such as a token."""


class PortSandboxes(Sandboxes):
    """A provider that forwards ports; :meth:`stream` is made of the rest."""

    @abstractmethod
    def port(self, id: str, port: int) -> Address:
        """The address of a port, whether anything listens there or not."""

    def stream(
        self, id: str, argv: Sequence[str], *, env: Mapping[str, str] | None = None
    ) -> Stream:
        port, secret = random.choice(PORTS), secrets.token_urlsafe(32)
        opened = self.execute(
            id,
            ["/usr/bin/python3", "-I", "-S", "-c", _DOORWAY, str(port), *argv],
            env={**(env or {}), doorway.SECRET: secret},
        )
        if opened.code:
            raise EnvFailure(f"no port could be opened in the sandbox: {opened.text[-500:]}")
        address = self.port(id, port)
        opening = contextlib.ExitStack()
        try:
            connection = opening.enter_context(
                connect(
                    address.url,
                    additional_headers={**address.headers, "x-legato-door": secret},
                    open_timeout=OPEN_S,
                    close_timeout=CLOSE_S,
                    compression=None,  # what is worth it is compressed already
                    max_size=None,
                    user_agent_header=None,
                    logger=_quiet,
                )
            )
        except (InvalidHandshake, OSError, WebSocketException) as e:
            raise EnvFailure(f"the sandbox's port cannot be reached: {e}") from e
        return WebSocketStream(connection, opening)


class WebSocketStream:
    """Implements :class:`~legato.desktop.guest.mux.Stream` over a connection, which it owns."""

    def __init__(self, connection: ClientConnection, opened: contextlib.ExitStack) -> None:
        self._connection, self._opened = connection, opened
        self.errors = ""
        """The end of what the command complained about."""

    def read(self) -> bytes:
        while True:
            try:
                message = self._connection.recv(timeout=SILENCE_S)
            except ConnectionClosed as e:
                if e.rcvd is not None:
                    return b""
                raise ConnectionError("the connection to the sandbox was cut") from e
            if isinstance(message, bytes):
                return message
            self.errors = (self.errors + message)[-ERRORS_KEPT:]

    def write(self, data: bytes) -> None:
        try:
            self._connection.send(data)
        except ConnectionClosed as e:
            raise ConnectionError("the connection to the sandbox was cut") from e

    def close(self) -> None:
        """Without the closing handshake, for which a far end that hangs would let us wait."""
        with contextlib.suppress(OSError):
            self._connection.socket.shutdown(socket.SHUT_RDWR)
        self._opened.close()
