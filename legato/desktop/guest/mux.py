"""Many connections over one stream of bytes each way: how a machine far away is spoken to.

Both ends run this very module. A frame is ``>BII`` (kind, channel, length) and its payload:

==========  =====================================================================
``OPEN``    the payload names what the new channel is to lead to
``DATA``    bytes
``CREDIT``  ``>I``: so many more bytes of this channel will be taken
``END``     no more bytes will come on this channel
``RESET``   the channel is gone
``BEAT``    nothing; says that this end is alive
==========  =====================================================================

A channel is a socket to its user on either end. Nobody may send more than :data:`WINDOW` bytes
that the other end's user has not taken, so one channel that is not read holds up no other.

Standard library only: it also runs inside the machine.
"""

from __future__ import annotations

import collections
import contextlib
import os
import select
import selectors
import socket
import struct
import threading
from collections.abc import Callable
from typing import Protocol

WINDOW = 2**18
CHUNK = 2**16
MAX_PAYLOAD = 2**20
BEAT_S = 20.0
SILENCE_S = 300.0
"""An end that was not heard for so long, in seconds, is taken for gone."""
CLOSE_S = 5.0

OPEN, DATA, CREDIT, END, RESET, BEAT = range(6)
MAIN = 0
"""The channel that is there from the start."""

_HEAD = struct.Struct(">BII")
_COUNT = struct.Struct(">I")


class Stream(Protocol):
    """What a machine must offer: bytes to and from the guest program's standard streams."""

    def read(self) -> bytes:
        """Wait for some bytes; ``b""`` at the end. Raises ``OSError``."""
        ...

    def write(self, data: bytes) -> None:
        """Write all of it. Raises ``OSError``."""
        ...

    def close(self) -> None:
        """From any thread, idempotent: calls that wait in it end soon."""
        ...


class Pipes:
    """A :class:`Stream` over two descriptors, which it owns."""

    def __init__(self, source: int, sink: int) -> None:
        self._source, self._sink = source, sink

    def read(self) -> bytes:
        if not select.select([self._source], [], [], SILENCE_S)[0]:
            raise TimeoutError(f"nothing was heard for {SILENCE_S:g} s")
        return os.read(self._source, CHUNK)

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._sink, view) :]

    def close(self) -> None:
        """The process ends with its stream: there is nothing to free sooner."""


class _Channel:
    def __init__(self, number: int, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.number = number
        self.sock = sock
        self.pending = bytearray()
        """Come from the other end, not yet taken by the user."""
        self.credit = WINDOW
        """Bytes that we may still send."""
        self.taken = 0
        """Bytes that the user took since we last gave credit."""
        self.ended = False
        """The other end will send no more."""
        self.shut = False
        """Our user knows that."""
        self.finished = False
        """Our user will send no more."""
        self.events = 0


class Mux:
    """One end. ``main`` is this end's socket of the first channel.

    ``accept`` is called with the name of a channel that the other end opens, and returns a
    connected socket or raises ``OSError``. Exactly one end is ``first``. When the stream ends, so
    do all channels, and ``ended`` is called.
    """

    def __init__(
        self,
        stream: Stream,
        accept: Callable[[str], socket.socket],
        *,
        first: bool,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        self._stream, self._accept, self._ended = stream, accept, ended
        self._lock = threading.RLock()
        self._selector = selectors.DefaultSelector()
        self._out: collections.deque[bytes] = collections.deque()
        self._channels: dict[int, _Channel] = {}
        self._touched: set[_Channel] = set()
        self._next = 1 if first else 2
        self._closed = False
        self._pump_id = 0
        self.reason = ""
        """Why the stream ended, for messages."""
        self._wakeup, self._wakeup_in = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._selector.register(self._wakeup, selectors.EVENT_READ, None)
        self.main = self._add(MAIN)
        self._threads = [
            threading.Thread(target=work, name=f"legato mux {work.__name__}", daemon=True)
            for work in (self._read, self._pump)
        ]
        for thread in self._threads:
            thread.start()

    def open(self, name: str) -> socket.socket:
        """A new channel to what the other end knows by ``name``."""
        with self._lock:
            if self._closed:
                raise ConnectionError(f"the connection has ended: {self.reason}")
            number, self._next = self._next, self._next + 2
            self._say(OPEN, number, name.encode())
            return self._add(number)

    def close(self) -> None:
        """End everything. Idempotent; not from within a callback."""
        self._fail("closed")
        for thread in self._threads:
            thread.join(CLOSE_S)

    def _add(self, number: int) -> socket.socket:
        """Our user's end of a new channel."""
        ours, users = socket.socketpair()
        self._adopt(number, ours)
        return users

    def _adopt(self, number: int, sock: socket.socket) -> None:
        with self._lock:
            channel = _Channel(number, sock)
            self._channels[number] = channel
            self._touch(channel)

    def _say(self, kind: int, number: int, payload: bytes = b"") -> None:
        self._out.append(_HEAD.pack(kind, number, len(payload)) + payload)
        self._wake()

    def _touch(self, channel: _Channel) -> None:
        """Have the pump look at a channel whose state changed."""
        self._touched.add(channel)
        self._wake()

    def _wake(self) -> None:
        if threading.get_ident() == self._pump_id:
            return  # it looks before it waits
        with contextlib.suppress(BlockingIOError, OSError):
            os.write(self._wakeup_in, b"\0")

    # --- the reader's thread -----------------------------------------------------------------

    def _read(self) -> None:
        data = bytearray()
        why = "the other end is gone"
        try:
            while chunk := self._stream.read():
                data += chunk
                self._take_frames(data)
        except (OSError, ValueError) as e:
            why = str(e) or repr(e)
        self._fail(why)

    def _take_frames(self, data: bytearray) -> None:
        start = 0
        while len(data) - start >= _HEAD.size:
            kind, number, length = _HEAD.unpack_from(data, start)
            if kind > BEAT or length > MAX_PAYLOAD:
                raise ValueError(f"what came is no frame: kind {kind}, {length} bytes")
            end = start + _HEAD.size + length
            if len(data) < end:
                break
            self._take(kind, number, bytes(data[start + _HEAD.size : end]))
            start = end
        del data[:start]

    def _take(self, kind: int, number: int, payload: bytes) -> None:
        if kind == OPEN:
            try:
                sock = self._accept(payload.decode())
            except OSError:
                with self._lock:
                    self._say(RESET, number)
            else:
                self._adopt(number, sock)
            return
        with self._lock:
            channel = self._channels.get(number)
            if channel is None:
                return  # let go of meanwhile
            if kind == DATA:
                channel.pending += payload
                self._deliver(channel)
            elif kind == CREDIT:
                channel.credit += _COUNT.unpack(payload)[0]
                self._touch(channel)
            elif kind == END:
                channel.ended = True
                self._deliver(channel)
            elif kind == RESET:
                channel.ended = channel.finished = True
                channel.pending.clear()
                self._deliver(channel)

    def _deliver(self, channel: _Channel) -> None:
        """Give our user what has come, as far as it takes it."""
        try:
            while channel.pending:
                sent = channel.sock.send(channel.pending)
                del channel.pending[:sent]
                channel.taken += sent
        except BlockingIOError:
            pass
        except OSError:
            self._drop(channel)
            return
        if channel.taken >= WINDOW // 2:
            self._say(CREDIT, channel.number, _COUNT.pack(channel.taken))
            channel.taken = 0
        if channel.ended and not channel.pending and not channel.shut:
            channel.shut = True
            with contextlib.suppress(OSError):
                channel.sock.shutdown(socket.SHUT_WR)
        self._touch(channel)

    def _drop(self, channel: _Channel) -> None:
        """Our user is gone without a word."""
        channel.pending.clear()
        channel.ended = channel.shut = channel.finished = True
        self._say(RESET, channel.number)
        self._touch(channel)

    # --- the pump's thread -------------------------------------------------------------------

    def _pump(self) -> None:
        self._pump_id = threading.get_ident()
        try:
            while self._turn():
                pass
        except OSError as e:
            self._fail(str(e) or repr(e))
        with self._lock:
            for channel in self._channels.values():
                channel.sock.close()
            self._channels.clear()
            self._selector.close()
            os.close(self._wakeup)
            os.close(self._wakeup_in)
            self._wakeup_in = -1
        self._ended()

    def _turn(self) -> bool:
        """Send what there is, wait, collect what there is to send; whether to go on."""
        with self._lock:
            if self._closed:
                return False
            for channel in self._touched:
                self._watch(channel)
            self._touched.clear()
            out = b"".join(self._out)
            self._out.clear()
        if out:
            self._stream.write(out)
        ready = self._selector.select(0 if out else BEAT_S)
        with self._lock:
            if not ready and not out:
                self._say(BEAT, MAIN)
            for key, events in ready:
                if key.data is None:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._wakeup, 4096)
                    continue
                if events & selectors.EVENT_WRITE:
                    self._deliver(key.data)
                if events & selectors.EVENT_READ:
                    self._collect(key.data)
        return True

    def _collect(self, channel: _Channel) -> None:
        if channel.finished or not channel.credit:
            return
        try:
            data = channel.sock.recv(min(CHUNK, channel.credit))
        except BlockingIOError:
            return
        except OSError:
            self._drop(channel)
            return
        if data:
            channel.credit -= len(data)
            self._say(DATA, channel.number, data)
        else:
            channel.finished = True
            self._say(END, channel.number)
        self._touch(channel)

    def _watch(self, channel: _Channel) -> None:
        events = 0
        if not channel.finished and channel.credit:
            events |= selectors.EVENT_READ
        if channel.pending:
            events |= selectors.EVENT_WRITE
        if events != channel.events:
            if not events:
                self._selector.unregister(channel.sock)
            elif not channel.events:
                self._selector.register(channel.sock, events, channel)
            else:
                self._selector.modify(channel.sock, events, channel)
            channel.events = events
        if channel.finished and channel.shut:
            channel.sock.close()
            if self._channels.get(channel.number) is channel:
                del self._channels[channel.number]

    def _fail(self, why: str) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self.reason = why
            for channel in self._channels.values():
                with contextlib.suppress(OSError):
                    channel.sock.shutdown(socket.SHUT_RDWR)
            if self._wakeup_in >= 0:
                os.write(self._wakeup_in, b"\0")
        self._stream.close()
