"""Browsers of a desktop: starting them with a devtools pipe, and listening at their pipes.

Runs inside the sandbox under the system's own Python: standard library only.
"""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence

from .browser import HANDLERS, InFlight, Message, PageLoads

PROGRAMS = frozenset(
    {"chromium", "chromium-browser", "chrome", "google-chrome", "google-chrome-stable"}
)
_METHOD = re.compile(rb'\{"method":"([A-Za-z.]+)"')


def is_browser(argv: Sequence[str], path: str | None = None) -> bool:
    """Whether ``argv`` starts a browser that has a devtools pipe; ``path`` is its ``PATH``."""
    found = shutil.which(argv[0], path=path)
    names = {os.path.basename(argv[0])}
    if found:
        names.add(os.path.basename(os.path.realpath(found)))
    return not names.isdisjoint(PROGRAMS)


class Running:
    """One browser and our end of its pipe."""

    def __init__(self, loads: PageLoads, pipe: socket.socket) -> None:
        self.loads, self.pipe = loads, pipe
        self._rest = bytearray()
        self._reading = threading.Lock()

    def read(self) -> list[Message] | None:
        """Wait for news, take them, and return what to answer; ``None`` at the end."""
        _readable(self.pipe, None)
        with self._reading:
            chunk = self.pipe.recv(1 << 16)
            self._rest += chunk
            answers: list[Message] = []
            if b"\0" in chunk:
                *messages, self._rest = self._rest.split(b"\0")
                for raw in messages:
                    answers += _answers(self.loads, raw)
        return answers if chunk else None

    def close(self) -> None:
        with self._reading:
            self.pipe.close()

    def in_flight(self) -> InFlight:
        """What is under way; news that nobody has read yet may tell of a request."""
        with self._reading:
            awaited, background = self.loads.in_flight()
            unread = self.pipe.fileno() >= 0 and _readable(self.pipe, 0)
            return InFlight(awaited + unread, background)


class Browsers:
    """Starts browsers and sums up what their pages have in flight. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: list[Running] = []

    def start(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        log_fd: int,
        within: Callable[[Sequence[str]], list[str]] = list,
    ) -> int:
        """Start a browser in a session of its own; returns its pid, which the caller reaps.

        Its output goes to ``log_fd``. ``within`` turns its command line into the one to run.
        Wrapper scripts hand the pipe on. A browser that only passes its URL to a running instance
        closes its pipe as it exits; the running instance reports the page. Raises
        ``FileNotFoundError`` if there is no such program.
        """
        flags = [] if _PIPE_FLAG in argv else [_PIPE_FLAG]
        command = within([argv[0], *flags, *argv[1:]])
        program = shutil.which(command[0], path=env.get("PATH"))
        if program is None:
            raise FileNotFoundError(f"no program {command[0]!r} on the desktop's PATH")
        # A socket, not a pipe: whoever sees a pipe in /proc/<pid>/fd can open it anew.
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                pid = os.posix_spawn(
                    program,
                    command,
                    dict(env),
                    file_actions=[
                        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                        (os.POSIX_SPAWN_DUP2, log_fd, 1),
                        (os.POSIX_SPAWN_DUP2, log_fd, 2),
                        (os.POSIX_SPAWN_DUP2, theirs.fileno(), 3),
                        (os.POSIX_SPAWN_DUP2, theirs.fileno(), 4),
                    ],
                    setsid=True,
                    setsigdef=_IGNORED_BY_PYTHON,
                )
            except BaseException:
                ours.close()
                raise
        browser = Running(PageLoads(), ours)
        with self._lock:
            self._running.append(browser)
        threading.Thread(
            target=self._drain, args=(browser,), name=f"devtools-{pid}", daemon=True
        ).start()
        return pid

    def in_flight(self) -> InFlight:
        """What the pages of all running browsers have under way."""
        with self._lock:
            running = list(self._running)
        counts = [browser.in_flight() for browser in running]
        return InFlight(sum(c.awaited for c in counts), sum(c.background for c in counts))

    def _drain(self, browser: Running) -> None:
        """Read until the browser is gone. The browser exits if this ever stops reading."""
        pipe = browser.pipe
        try:
            pipe.sendall(_encoded(browser.loads.hello()))
            while (answers := browser.read()) is not None:
                pipe.sendall(_encoded(answers))
        except ConnectionError:
            pass  # the browser is gone with our last words unread
        finally:
            with self._lock:
                self._running.remove(browser)
            browser.close()


_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
_PIPE_FLAG = "--remote-debugging-pipe"


def _readable(sock: socket.socket, timeout_ms: int | None) -> bool:
    poll = select.poll()  # select() knows no descriptors over 1023
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(timeout_ms))


def _answers(loads: PageLoads, raw: bytearray) -> list[Message]:
    method = _METHOD.match(raw)
    if method and method[1].decode() not in HANDLERS:
        return []  # most events need no parsing
    try:
        return loads.handle(json.loads(raw))
    except (ValueError, KeyError, TypeError) as e:
        # One event that is not as the protocol says must not cost us all later ones.
        print(f"devtools: ignored {bytes(raw[:200])!r}: {e!r}", file=sys.stderr, flush=True)
        return []


def _encoded(messages: list[Message]) -> bytes:
    return b"".join(json.dumps(m, separators=(",", ":")).encode() + b"\0" for m in messages)
