"""Bytes to the model server and back: one bounded call, one connection."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import httpx

from legato.errors import PolicyFailure
from legato.rl.policy.config import PolicyConfig
from legato.rl.policy.refusal import retry_after, scrub

# uvicorn closes idle connections after 5 s; reusing one at that moment loses the request
KEEPALIVE_EXPIRY = 3.0
MAX_ANSWER = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Response:
    status_code: int
    body: bytes
    retry_after: float | None = None
    """Seconds the server asks to wait, at most the step timeout."""

    def json(self) -> Any:
        """The decoded body. Raises ``ValueError`` if it is not JSON."""
        try:
            return json.loads(self.body)
        except RecursionError:
            raise ValueError("JSON nested too deeply") from None


class Transport:
    """Calls to one server, each ended by the step timeout at the latest.

    Raises transient :class:`~legato.errors.PolicyFailure` when no answer comes. Cancelling a call
    closes its connection, which is how the server learns of it.
    """

    def __init__(self, config: PolicyConfig) -> None:
        self._config = config
        self._ssl = httpx.create_ssl_context()
        self._clients: list[httpx.AsyncClient] = []
        self._idle: list[httpx.AsyncClient] = []

    async def post(self, url: str, body: bytes) -> Response:
        return await self._call("POST", url, body)

    async def get(self, url: str) -> Response:
        return await self._call("GET", url, None)

    async def aclose(self) -> None:
        clients, self._clients, self._idle = self._clients, [], []
        for client in clients:
            await client.aclose()

    async def _call(self, method: str, url: str, body: bytes | None) -> Response:
        chunks: list[bytes] = []
        size = 0
        try:
            with self._connection() as client:
                async with (
                    asyncio.timeout(self._config.step_timeout),
                    client.stream(method, url, content=body) as response,
                ):
                    async for chunk in response.aiter_bytes():
                        size += len(chunk)
                        if size > MAX_ANSWER:
                            raise PolicyFailure(f"{url} answers without end")
                        chunks.append(chunk)
        except TimeoutError:
            raise PolicyFailure(
                f"{self._config.url} did not answer within {self._config.step_timeout:g} s "
                f"(--step-timeout)"
            ) from None
        except httpx.RequestError as error:
            reason = scrub(str(error), self._config.secret) or type(error).__name__
            raise PolicyFailure(
                f"no model server answers at {self._config.url}: {reason}"
            ) from None
        wait = retry_after(response.headers.get("Retry-After"), self._config.step_timeout)
        return Response(response.status_code, b"".join(chunks), wait)

    @contextmanager
    def _connection(self) -> Iterator[httpx.AsyncClient]:
        """A client of its own for each call under way, used again afterwards.

        One pool for all would cost each call a walk over all connections: at 256 of them, several
        times the CPU of everything else in the call.
        """
        client = self._idle.pop() if self._idle else self._connect()
        try:
            yield client
        finally:
            self._idle.append(client)

    def _connect(self) -> httpx.AsyncClient:
        headers = {"Content-Type": "application/json"}
        if self._config.secret:
            headers["Authorization"] = f"Bearer {self._config.secret}"
        client = httpx.AsyncClient(
            headers=headers,
            verify=self._ssl,
            timeout=None,  # asyncio.timeout bounds the call as a whole
            limits=httpx.Limits(max_connections=1, keepalive_expiry=KEEPALIVE_EXPIRY),
            # a proxy meant for the internet cannot reach a server on this machine
            trust_env=not _is_loopback(self._config.url),
        )
        self._clients.append(client)
        return client


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
