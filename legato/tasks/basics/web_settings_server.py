"""The settings app of ``web_settings``: a small HTTP server on a unix socket. Stdlib only.

Runs confined on the host (:mod:`legato.tasks.confined`), out of the agent's reach: the guest's
browser gets at it through a relayed port and has only what a web page can do. It reads its
specification as one JSON line from standard input, says ``ready`` on standard output, and ends
when standard input closes.

Every page view, save and refused request is one JSON line in ``events.jsonl``, on disk before the
browser gets its answer; the last save is the state. Nothing depends on a clock or on chance.
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

MAX_HEAD = 16 * 2**10
MAX_BODY = 64 * 2**10
MAX_TEXT = 200
MAX_EVENTS = 2_000
REQUEST_S = 60.0
"""Browsers open connections ahead of need; those that stay silent are closed."""

Headers = Mapping[str, str]


@dataclass(frozen=True)
class Spec:
    page: str
    """The whole page, the session's secret in it and ``__VALUES__`` where the values belong."""
    values: dict[str, Any]
    """What is set before the first save, by control."""
    controls: list[dict[str, Any]]
    """``{"id", "kind": "check" | "choice" | "text", "options"}``"""
    host: str
    """What the browser calls us: ``127.0.0.1:<port>``."""
    secret: str


class Refused(Exception):  # noqa: N818 - an answer, not a fault
    """The request is not one that the page makes."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class App:
    """Answers requests and keeps the log."""

    def __init__(self, spec: Spec, log: int) -> None:
        self._spec, self._log = spec, log
        self._events = 0
        self._values = spec.values

    def answer(self, method: str, path: str, headers: Headers, body: bytes) -> tuple[int, str]:
        """Status and body for one request."""
        try:
            if self._events >= MAX_EVENTS:
                raise Refused(429, "the log is full")
            if headers.get("host") != self._spec.host:
                raise Refused(421, "wrong host")
            if (method, path) == ("GET", "/"):
                self._note({"event": "page"})
                return 200, self._page()
            if (method, path) == ("POST", "/save"):
                values = self._checked(headers, body)
                self._note({"event": "save", "values": values})
                self._values = values
                return 200, "saved"
            if method == "GET":
                return 404, "not found"
            raise Refused(405, f"{method} {path[:80]}")
        except Refused as e:
            if e.status != 429:
                self._note({"event": "refused", "why": str(e)})
            return e.status, str(e)

    def _page(self) -> str:
        # "<" escaped: a value must not be able to end the script it stands in.
        values = json.dumps(self._values).replace("<", "\\u003c")
        return self._spec.page.replace("__VALUES__", values)

    def _checked(self, headers: Headers, body: bytes) -> dict[str, Any]:
        if headers.get("origin") != f"http://{self._spec.host}":
            raise Refused(403, "wrong origin")
        if headers.get("content-type") != "application/json":
            raise Refused(415, "wrong content type")
        if not hmac.compare_digest(
            headers.get("x-session", "").encode(), self._spec.secret.encode()
        ):
            raise Refused(403, "wrong session")
        try:
            values = json.loads(body)
        except (ValueError, RecursionError):
            raise Refused(400, "not JSON") from None
        ids = {control["id"] for control in self._spec.controls}
        if not isinstance(values, dict) or set(values) != ids:
            raise Refused(400, "not the settings of this page")
        for control in self._spec.controls:
            if not _fits(control, values[control["id"]]):
                raise Refused(400, f"no value for {control['id']}")
        return values

    def _note(self, event: dict[str, Any]) -> None:
        self._events += 1
        os.write(self._log, json.dumps({"n": self._events, **event}).encode() + b"\n")
        os.fsync(self._log)

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


def _fits(control: Mapping[str, Any], value: Any) -> bool:
    if control["kind"] == "check":
        return isinstance(value, bool)
    if control["kind"] == "choice":
        return value in control["options"]
    return isinstance(value, str) and len(value) <= MAX_TEXT


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
        "style-src 'unsafe-inline'; img-src data:; connect-src 'self'; frame-ancestors 'none'\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode("latin-1") + body


def open(folder: str) -> Callable[[], None]:
    """Bind ``app.sock`` and start ``events.jsonl`` in ``folder``; returns the server loop."""
    # Relative, because the path of a unix socket is at most 108 bytes.
    os.chdir(folder)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("app.sock")
    # The folder keeps everyone else out; the relay connects as the agent's user.
    os.chmod("app.sock", 0o666)
    listener.listen(64)
    log = os.open("events.jsonl", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
    spec = Spec(**json.loads(sys.stdin.buffer.readline()))
    return lambda: asyncio.run(_serve(App(spec, log), listener))


async def _serve(app: App, listener: socket.socket) -> None:
    server = await asyncio.start_unix_server(app.connection, sock=listener, limit=MAX_HEAD)
    driver_gone = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), driver_gone.set)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    async with server:
        await driver_gone.wait()
