"""A provider on the loopback: its HTTP API in front of sandboxes of this machine, and faults.

What the provider's own package needs is spoken over real sockets, so that the package is used as
it is. One :class:`Provider` says how it serves; :meth:`Provider.fail` what goes wrong with the next
requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from legato.desktop.sandboxes.local import LocalSandboxes

START_S = 30.0

_DIAL = """
import os, socket, sys, threading
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 10)
s.settimeout(None)
def pump(read, write):
    while data := read(65536):
        write(data)
    os._exit(0)
threading.Thread(target=pump, args=(lambda n: os.read(0, n), s.sendall), daemon=True).start()
pump(s.recv, lambda data: os.write(1, data))
"""


@dataclass
class Fault:
    """The next ``times`` requests that match are answered with this instead."""

    method: str
    path: str
    """Part of the path."""
    status: int
    message: str
    times: int = 1
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Made:
    """A sandbox as the API tells of it."""

    id: str
    labels: dict[str, str]
    image: str
    asked: dict[str, Any]
    """The body of the request that made it."""
    polls: int = 0
    """Further looks at it until it has started."""
    renewed: int = 0


class Provider(ABC):
    """Serves ``routes`` until the block ends; see the subclasses for what is where."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.machines = LocalSandboxes()
        self.made: dict[str, Made] = {}
        self.images: set[str] = set()
        self.recipes: dict[str, Any] = {}
        """What images were built from, by name."""
        self.latency = 0.0
        """Seconds of a round trip, half of it each way."""
        self.start_polls = 0
        """How often a new sandbox is found still starting."""
        self.requests: list[tuple[str, str]] = []
        self.most_creating = 0
        """Sandboxes that were being created at the same time."""
        self._creating = 0
        self._counting = threading.Lock()
        self._faults: deque[Fault] = deque()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        config = uvicorn.Config(
            _Gate(self, self.app()), log_level="error", lifespan="off", timeout_graceful_shutdown=2
        )
        self._server = uvicorn.Server(config)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="provider", daemon=True)

    @abstractmethod
    def app(self) -> Starlette:
        """The API, route by route."""

    @abstractmethod
    def environment(self) -> dict[str, str]:
        """Variables by which the provider's package finds it."""

    @abstractmethod
    def authorized(self, scope: Scope, headers: Headers) -> bool:
        """Whether a request carries the key, as the provider's package sends it."""

    def fail(self, fault: Fault) -> None:
        self._faults.append(fault)

    def fault_of(self, method: str, path: str) -> Fault | None:
        for fault in self._faults:
            if fault.method == method and fault.path in path and fault.times:
                fault.times -= 1
                return fault
        return None

    def vanish(self, id: str) -> None:
        """A sandbox is gone, and the provider does not know it any more."""
        self.made.pop(id)
        self.machines.delete(id)

    def cut_streams(self) -> None:
        """As when a network fails: without a word."""
        for connection in list(self._server.server_state.connections):
            if isinstance(connection, WebSocketsSansIOProtocol):
                assert self._loop is not None
                self._loop.call_soon_threadsafe(connection.transport.abort)

    def create(self, image: str, labels: dict[str, str], life_s: float, body: Any) -> Made:
        with self._counting:
            self._creating += 1
            self.most_creating = max(self.most_creating, self._creating)
        machine = self.machines.create(labels, life_s=life_s, timeout=START_S)
        with self._counting:
            self._creating -= 1
        made = Made(machine.id, labels, image, body, polls=self.start_polls)
        self.made[machine.id] = made
        return made

    async def tunnel(self, websocket: WebSocket, id: str, port: int) -> None:
        """Forward a WebSocket to a port of a sandbox, message by message."""
        ours, theirs = socket.socketpair()
        argv = ["/usr/bin/python3", "-I", "-S", "-c", _DIAL, str(port)]
        dialling = self.machines.start(
            id, argv, stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL
        )
        theirs.close()
        headers = {k: v for k, v in websocket.headers.items() if k.startswith("x-legato")}
        try:
            async with connect(
                f"ws://sandbox:{port}",
                sock=ours,
                additional_headers=headers,
                compression=None,
                max_size=None,
                user_agent_header=None,
            ) as inner:
                await websocket.accept()
                await self._forward(websocket, inner)
        except (InvalidHandshake, OSError):
            await websocket.close()
        finally:
            dialling.kill()
            dialling.wait()

    async def _forward(self, websocket: WebSocket, inner: ClientConnection) -> None:
        async def heard() -> AsyncIterator[str | bytes]:
            while (message := await websocket.receive())["type"] == "websocket.receive":
                yield message.get("bytes") or message.get("text") or b""

        async def answer(message: str | bytes) -> None:
            if isinstance(message, str):
                await websocket.send_text(message)
            else:
                await websocket.send_bytes(message)

        ways = [
            asyncio.create_task(self._carry(heard(), inner.send)),
            asyncio.create_task(self._carry(aiter(inner), answer)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
        with contextlib.suppress(RuntimeError, WebSocketDisconnect):
            await websocket.close()

    async def _carry(
        self, source: AsyncIterator[str | bytes], sink: Callable[[Any], Awaitable[None]]
    ) -> None:
        """One way, each message half a round trip later, whatever was sent meanwhile."""
        loop = asyncio.get_running_loop()
        way: asyncio.Queue[tuple[float, str | bytes] | None] = asyncio.Queue()

        async def deliver() -> None:
            while (entry := await way.get()) is not None:
                due, message = entry
                await asyncio.sleep(max(0.0, due - loop.time()))
                await sink(message)

        delivering = asyncio.create_task(deliver())
        try:
            with contextlib.suppress(ConnectionClosed):
                async for message in source:
                    way.put_nowait((loop.time() + self.latency / 2, message))
            way.put_nowait(None)
            await delivering
        finally:
            delivering.cancel()

    def __enter__(self) -> Provider:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.cut_streams()
        self._server.should_exit = True
        self._thread.join(START_S)
        self.machines.close()

    def _run(self) -> None:
        async def main() -> None:
            self._loop = asyncio.get_running_loop()
            await self._server.serve(sockets=[self._listener])

        asyncio.run(main())


class _Gate:
    """In front of everything: who may come in, how long it takes, what goes wrong."""

    def __init__(self, provider: Provider, app: ASGIApp) -> None:
        self._provider, self._app = provider, app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        provider = self._provider
        if scope["type"] == "websocket":
            await self._app(scope, receive, send)
            return
        provider.requests.append((scope["method"], scope["path"]))
        await asyncio.sleep(provider.latency)
        fault = provider.fault_of(scope["method"], scope["path"])
        if fault is None and not provider.authorized(scope, Headers(scope=scope)):
            fault = Fault("", "", 401, "Unauthorized")
        if fault is not None:
            body = {"message": fault.message, "code": fault.status}
            refusal = JSONResponse(body, fault.status, headers=fault.headers)
            await refusal(scope, receive, send)
            return
        await self._app(scope, receive, send)
