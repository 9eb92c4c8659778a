"""A server on a unix socket of the host, for tests of the ports that lead to one."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from pathlib import Path


class SocketServer:
    """Gives every connection to ``answer``, in a thread of its own, and then closes it."""

    def __init__(self, path: Path, answer: Callable[[socket.socket], None]) -> None:
        self._answer = answer
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(8)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._serve_one, args=(connection,), daemon=True).start()

    def _serve_one(self, connection: socket.socket) -> None:
        with connection:
            self._answer(connection)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
