"""A model server that can be lost: a relay of bytes to the real one, which can go away."""

from __future__ import annotations

import contextlib
import socket
import threading


class LossyServer:
    """``with LossyServer(host, port) as lossy: lossy.url``; it can :meth:`go` and :meth:`come`."""

    def __init__(self, host: str, port: int) -> None:
        self._real = (host, port)
        self._listener: socket.socket | None = None
        self._open: set[socket.socket] = set()
        self._port = 0
        self._lock = threading.Lock()
        self.requests = threading.Semaphore(0)
        """Released once for every connection."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def come(self) -> None:
        """Listen, on the same port as before."""
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self._port))
        self._port = listener.getsockname()[1]
        listener.listen(64)
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def go(self) -> None:
        """Cut every connection and refuse new ones."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        with self._lock:
            for side in self._open:
                with contextlib.suppress(OSError):
                    side.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> LossyServer:
        self.come()
        return self

    def __exit__(self, *_: object) -> None:
        self.go()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            self.requests.release()
            far = socket.create_connection(self._real)
            with self._lock:
                self._open |= {near, far}
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(source, target), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        for side in (source, target):
            with contextlib.suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)
        with self._lock:
            self._open.discard(source)
        source.close()
