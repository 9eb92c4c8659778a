"""Connecting to unix sockets by paths of any length."""

from __future__ import annotations

import os
import socket
from pathlib import Path


def connect_unix(path: Path, timeout: float) -> socket.socket:
    """A connection to the stream socket at ``path``, with that timeout in seconds set.

    Raises ``OSError``.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(timeout)
    try:
        # Through the directory's descriptor: a socket's path is limited to 107 bytes.
        parent = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
        try:
            sock.connect(f"/proc/self/fd/{parent}/{path.name}")
        finally:
            os.close(parent)
    except BaseException:
        sock.close()
        raise
    return sock
