"""The server of a web app: HTTP on a unix socket, a state, and a log. Stdlib only.

Runs confined on the host (:mod:`legato.tasks.confined`), out of the agent's reach: the guest's
browser gets at it through a relayed port and has only what a web page can do. It reads its
specification as one JSON line from standard input, says ``ready`` on standard output, and ends
when standard input closes.

Every page view, operation and request that is turned down is one JSON line in ``events.jsonl``,
and the state after it is in ``state.json``, both on disk before the browser gets its answer. A
request counts only if it carries the session's secret, which the page holds and no form can send,
and comes as JSON from the page's own origin: else it is ``refused``. One that does, and asks for
what cannot be done (a row is gone), is ``invalid``. Nothing depends on a clock or on chance.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import os
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from legato.tasks.web.markup import STATE_MARK, script_value
from legato.tasks.web.ops import Operations, Rejected, State, apply

MAX_HEAD = 16 * 2**10
MAX_BODY = 64 * 2**10
MAX_EVENTS = 2_000
MAX_LOG = 16 * 2**20
"""Bytes of the log from which on nothing more is taken; one line, in which a byte may have become
three, still fits after them into any file the server may write."""
REQUEST_S = 60.0
"""Browsers open connections ahead of need; those that stay silent are closed."""
DO = "/do"
"""Where the page sends operations."""

Headers = Mapping[str, str]


@dataclass(frozen=True)
class Spec:
    pages: dict[str, str]
    """Path to page, the session's secret in it and ``STATE_MARK`` where the state belongs."""
    state: State
    operations: Operations
    host: str
    """What the browser calls us: ``127.0.0.1:<port>``."""
    secret: str


class Refused(Exception):  # noqa: N818 - an answer, not a fault
    """The request is not one that the page makes."""

    event = "refused"

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class Invalid(Refused):
    """The page made it, and it cannot be done: of two windows, say, the other was first."""

    event = "invalid"


class App:
    """Answers requests, keeps the state and the log."""

    def __init__(self, spec: Spec, log: int, saved: int) -> None:
        self._spec, self._log, self._saved = spec, log, saved
        self._events = self._logged = 0
        self._state = spec.state
        self._save()

    def answer(self, method: str, path: str, headers: Headers, body: bytes) -> tuple[int, str]:
        """Status and body for one request."""
        try:
            if self._events >= MAX_EVENTS or self._logged >= MAX_LOG:
                raise Refused(429, "the log is full")
            if headers.get("host") != self._spec.host:
                raise Refused(421, "wrong host")
            if method == "GET" and path in self._spec.pages:
                self._note({"event": "page", "path": path})
                return 200, self._page(path)
            if (method, path) == ("POST", DO):
                return 200, self._do(self._checked(headers, body))
            if method == "GET":
                return 404, "not found"
            raise Refused(405, f"{method} {path[:80]}")
        except Refused as e:
            if e.status != 429:
                self._note({"event": e.event, "why": str(e)})
            return e.status, str(e)

    def _page(self, path: str) -> str:
        return self._spec.pages[path].replace(STATE_MARK, script_value(self._state))

    def _do(self, request: Any) -> str:
        try:
            state = apply(self._state, self._spec.operations, request)
        except Rejected as e:
            raise Invalid(400, str(e)) from None
        self._note({"event": "do", "request": request})
        self._state = state
        self._save()
        return json.dumps(state)

    def _checked(self, headers: Headers, body: bytes) -> Any:
        if headers.get("origin") != f"http://{self._spec.host}":
            raise Refused(403, "wrong origin")
        if headers.get("content-type") != "application/json":
            raise Refused(415, "wrong content type")
        if not hmac.compare_digest(
            headers.get("x-session", "").encode(), self._spec.secret.encode()
        ):
            raise Refused(403, "wrong session")
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            raise Refused(400, "not JSON") from None

    def _note(self, event: dict[str, Any]) -> None:
        self._events += 1
        line = json.dumps({"n": self._events, **event}).encode() + b"\n"
        self._logged += os.write(self._log, line)
        os.fsync(self._log)

    def _save(self) -> None:
        data = json.dumps(self._state).encode()
        os.pwrite(self._saved, data, 0)
        os.ftruncate(self._saved, len(data))
        os.fsync(self._saved)

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request and its answer, then close."""
        try:
            method, path, headers, body = await asyncio.wait_for(_request(reader), REQUEST_S)
            status, text = self.answer(method, path, headers, body)
            writer.write(_response(status, text))
            await asyncio.wait_for(writer.drain(), REQUEST_S)
        except (OSError, ValueError, EOFError, TimeoutError, asyncio.LimitOverrunError):
            pass  # the browser went away, or this was not HTTP
        finally:
            writer.close()


async def _request(reader: asyncio.StreamReader) -> tuple[str, str, Headers, bytes]:
    """Raises ``ValueError`` or ``EOFError`` for what is no request we take."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.rstrip("\r\n").split("\r\n")
    method, path, _version = first.split(" ")
    headers: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    length = int(headers.get("content-length", "0"))
    if not 0 <= length <= MAX_BODY:
        raise ValueError("body too long")
    return method, path, headers, await reader.readexactly(length)


def _response(status: int, text: str) -> bytes:
    kind = "text/html" if text.startswith("<!doctype html>") else "text/plain"
    body = text.encode()
    head = (
        f"HTTP/1.1 {status} -\r\n"
        f"Content-Type: {kind}; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\n"
        "Content-Security-Policy: default-src 'none'; script-src 'unsafe-inline'; "
        "style-src 'unsafe-inline'; img-src data:; connect-src 'self'; frame-ancestors 'none'; "
        "form-action 'none'; base-uri 'none'\r\n"
        "Referrer-Policy: no-referrer\r\n"
        "X-Content-Type-Options: nosniff\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode("latin-1") + body


def open(folder: str) -> Callable[[], None]:
    """Bind ``app.sock`` and start log and state in ``folder``; returns the server loop."""
    # Relative, because the path of a unix socket is at most 108 bytes.
    os.chdir(folder)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("app.sock")
    # The folder keeps everyone else out; the relay connects as the agent's user.
    os.chmod("app.sock", 0o666)
    listener.listen(64)
    new = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    log = os.open("events.jsonl", new | os.O_APPEND, 0o600)
    saved = os.open("state.json", new, 0o600)
    spec = Spec(**json.loads(sys.stdin.buffer.readline()))
    return lambda: asyncio.run(_serve(App(spec, log, saved), listener))


async def _serve(app: App, listener: socket.socket) -> None:
    server = await asyncio.start_unix_server(app.connection, sock=listener, limit=MAX_HEAD)
    driver_gone = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), driver_gone.set)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    async with server:
        await driver_gone.wait()
