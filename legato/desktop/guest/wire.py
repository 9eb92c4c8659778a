"""Messages between driver and guest: a JSON header, raw bytes, and open descriptors.

On the stream a message is ``>II`` (header length, blob length), the header as UTF-8 JSON, then
the blob. Descriptors travel as ``SCM_RIGHTS`` with the first byte.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Sequence
from typing import Any

MAX_HEADER = 32 * 2**20
MAX_BLOB = 2**30
MAX_FDS = 4

_LENGTHS = struct.Struct(">II")


class Closed(ConnectionError):  # noqa: N818 - a state
    """The other side is gone."""


def send(
    sock: socket.socket,
    header: dict[str, Any],
    blob: bytes = b"",
    fds: Sequence[int] = (),
    *,
    deadline: float,
) -> None:
    """Send one message; raises ``TimeoutError`` at ``deadline`` (``time.monotonic()`` seconds)."""
    head = json.dumps(header).encode()
    data = memoryview(_LENGTHS.pack(len(head), len(blob)) + head)
    _arm(sock, deadline)
    sent = socket.send_fds(sock, [data], list(fds)) if fds else sock.send(data)
    for part in (data[sent:], memoryview(blob)):
        while part:
            _arm(sock, deadline)
            part = part[sock.send(part) :]


def receive(sock: socket.socket, *, deadline: float) -> tuple[dict[str, Any], bytes, list[int]]:
    """Receive one message: header, blob, descriptors (now owned by the caller).

    Raises :class:`Closed` at the end of the stream, ``TimeoutError`` at ``deadline``,
    ``ValueError`` for lengths no honest peer sends.
    """
    _arm(sock, deadline)
    first, fds, _, _ = socket.recv_fds(sock, _LENGTHS.size, MAX_FDS)
    if not first:
        raise Closed("the connection was closed")
    lengths = first + _exactly(sock, _LENGTHS.size - len(first), deadline)
    head_len, blob_len = _LENGTHS.unpack(lengths)
    if head_len > MAX_HEADER or blob_len > MAX_BLOB:
        raise ValueError(f"message of {head_len} + {blob_len} bytes is over the limit")
    header = json.loads(_exactly(sock, head_len, deadline))
    return header, bytes(_exactly(sock, blob_len, deadline)), fds


def _exactly(sock: socket.socket, count: int, deadline: float) -> bytearray:
    data = bytearray(count)
    view = memoryview(data)
    while view:
        _arm(sock, deadline)
        got = sock.recv_into(view)
        if not got:
            raise Closed("the connection was closed in the middle of a message")
        view = view[got:]
    return data


def _arm(sock: socket.socket, deadline: float) -> None:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    sock.settimeout(left)
