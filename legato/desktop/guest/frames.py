"""The screen as the machine sees it, told as what changed since it was last told.

For drivers that cannot map the screen's memory. Format of that memory: see
``legato/desktop/x11/framebuffer.py``. A look is taken while the X server serves no one else, so
nothing in it is half drawn. Standard library only.
"""

from __future__ import annotations

import mmap
import socket
import struct
import zlib

BAND = 16
"""Rows that are compared, and told, together."""
TILE = 64
"""Bytes of a row, 16 pixels, that are compared together."""
REPLY_S = 5.0

_XWD = struct.Struct(">25I")
# Of the X protocol, version 11: the greeting of a client without authorization, three requests.
HELLO = struct.pack("<BxHHHHxx", ord("l"), 11, 0, 0, 0)
_GRAB_SERVER, _UNGRAB_SERVER, _GET_INPUT_FOCUS = (
    struct.pack("<BxH", code, 1) for code in (36, 37, 43)
)
_REPLY = 1

Rect = tuple[int, int, int, int]
"""x, y, width, height in pixels."""


class Frames:
    """Looks at the screen of one session. ``memory`` is its descriptor, which stays the caller's.

    Raises ``RuntimeError`` when the X server is gone or does not answer.
    """

    def __init__(self, memory: int, server: str) -> None:
        self._memory = mmap.mmap(memory, 0, prot=mmap.PROT_READ)
        fields = _XWD.unpack_from(self._memory)
        self.width, self.height = fields[4], fields[5]
        self._offset = fields[0] + 12 * fields[19]
        self._stride = 4 * self.width
        self._seen = bytes(self._stride * self.height)
        self._x = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._x.settimeout(REPLY_S)
        try:
            self._x.connect(server)
            self._x.sendall(HELLO)
            head = self._receive(8)
            if head[0] != _REPLY:
                raise RuntimeError("the X server refused the guest program")
            self._receive(4 * struct.unpack_from("<H", head, 6)[0])
        except BaseException:
            self.close()
            raise

    def changes(self) -> tuple[list[Rect], bytes]:
        """What differs from the last call's screen (at first: from black).

        Rectangles, and their pixels one after the other, row by row, 4 bytes each, compressed by
        zlib.
        """
        now = self._look()
        rects, parts = [], []
        if now != self._seen:
            for top in range(0, self.height, BAND):
                rows = min(BAND, self.height - top)
                columns = self._columns(now, top, rows)
                if columns is not None:
                    left, right = columns
                    rects.append((left // 4, top, (right - left) // 4, rows))
                    start, end = top * self._stride, (top + rows) * self._stride
                    parts += [now[i + left : i + right] for i in range(start, end, self._stride)]
            self._seen = now
        return rects, zlib.compress(b"".join(parts), 1) if parts else b""

    def close(self) -> None:
        self._x.close()
        self._memory.close()

    def _columns(self, now: bytes, top: int, rows: int) -> tuple[int, int] | None:
        """First and last byte column, by tiles, in which a band differs."""
        seen, stride = self._seen, self._stride
        start, end = top * stride, (top + rows) * stride
        if now[start:end] == seen[start:end]:
            return None
        left, right = stride, 0
        for row in range(start, end, stride):
            new, old = now[row : row + stride], seen[row : row + stride]
            if new == old:
                continue
            at = 0
            while at < left and new[at : at + TILE] == old[at : at + TILE]:
                at += TILE
            left = min(left, at)
            at = (stride - 1) // TILE * TILE
            while at >= right and new[at : at + TILE] == old[at : at + TILE]:
                at -= TILE
            right = max(right, min(at + TILE, stride))
        return left, right

    def _look(self) -> bytes:
        try:
            self._x.sendall(_GRAB_SERVER + _GET_INPUT_FOCUS)
            while self._receive(32)[0] != _REPLY:
                continue  # events that every client gets, such as of a new keyboard map
            now = self._memory[self._offset : self._offset + len(self._seen)]
            self._x.sendall(_UNGRAB_SERVER)
        except OSError as e:
            self._x.close()  # a late reply must not be taken for the next look's
            raise RuntimeError(f"the X server does not answer: {e}") from e
        return now

    def _receive(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            chunk = self._x.recv(count - len(data))
            if not chunk:
                raise ConnectionError("the X server is gone")
            data += chunk
        return data
