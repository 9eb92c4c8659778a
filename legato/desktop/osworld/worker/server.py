"""The server inside the guest, seen from OSWorld's process.

Every request that OSWorld's code makes goes through :func:`watch`, which notes what failed: a
server that does not answer, one that answers with an error of its own, a download refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import requests

from legato.desktop.osworld.worker.faults import LEDGER, Fault

TIMEOUT_S = 130.0
"""Longest one request may take: the guest's server itself ends a command after 120 s."""


@dataclass(frozen=True, slots=True)
class Ran:
    returncode: int
    output: str
    error: str


class GuestServer:
    """Requests of our own, each with a deadline. Raises :class:`Fault` of kind ``env``."""

    def __init__(self, host: str, port: int) -> None:
        self.root = f"http://{host}:{port}"

    def run(self, argv: Sequence[str], *, timeout: float = TIMEOUT_S) -> Ran:
        """Run a command as the guest's user. A command that cannot start raises too."""
        reply = self._ask("POST", "/execute", timeout, json={"command": list(argv), "shell": False})
        try:
            body = reply.json()
            return Ran(int(body.get("returncode", 0)), body["output"] or "", body["error"] or "")
        except (ValueError, KeyError, TypeError, AttributeError):
            said = reply.text[:200]
            raise Fault("env", f"the guest's server answered /execute with {said!r}") from None

    def python(self, source: str, *args: str, timeout: float = TIMEOUT_S) -> Any:
        """Run a script of ours in the guest and read the JSON of its last line."""
        ran = self.run(["python3", "-c", source, *args], timeout=timeout)
        try:
            return json.loads(ran.output.strip().rpartition("\n")[2])
        except ValueError:
            said = (ran.error or ran.output).strip().rpartition("\n")[2]
            raise Fault("env", f"a script in the guest failed: {said[-300:]}") from None

    def screenshot(self) -> bytes:
        """A PNG, pointer included."""
        reply = self._ask("GET", "/screenshot", 20.0)
        if not reply.content.startswith((b"\x89PNG", b"\xff\xd8")):
            raise Fault("env", "the guest's server sent a screenshot that is no image")
        return reply.content

    def file(self, path: str) -> bytes | None:
        """A file of the guest, ``None`` if there is none."""
        reply = self._ask("POST", "/file", 120.0, accept=(404,), data={"file_path": path})
        return None if reply.status_code == 404 else reply.content

    def answers(self, timeout: float = 5.0) -> bool:
        try:
            return requests.get(f"{self.root}/screenshot", timeout=timeout).status_code == 200
        except requests.RequestException:
            return False

    def _ask(
        self, method: str, path: str, timeout: float, *, accept: tuple[int, ...] = (), **body: Any
    ) -> requests.Response:
        try:
            reply = requests.request(method, f"{self.root}{path}", timeout=timeout, **body)
        except requests.RequestException as e:
            raise Fault(
                "env", f"the guest's server does not answer {path}: {type(e).__name__}"
            ) from None
        if reply.status_code != 200 and reply.status_code not in accept:
            raise Fault(
                "env",
                f"the guest's server answered {path} with HTTP {reply.status_code}: "
                f"{reply.text[:200].strip()}",
            )
        return reply


def watch(guest_ports: Callable[[], set[int]]) -> None:
    """Note every failed request of this process; ``guest_ports`` are those of the machine."""
    plain = requests.Session.request

    def request(self: requests.Session, method: Any, url: Any, *args: Any, **more: Any) -> Any:
        parts = urlsplit(str(url))
        if parts.scheme not in ("http", "https"):  # the docker client's
            return plain(self, method, url, *args, **more)
        more.setdefault("timeout", TIMEOUT_S)
        local = parts.port in guest_ports()
        name = f"the guest's {parts.path}" if local else str(url)
        try:
            reply = plain(self, method, url, *args, **more)
        except requests.RequestException as e:
            LEDGER.note(f"{name} could not be fetched: {type(e).__name__}")
            raise
        # A file that the agent did not make is the agent's doing, and /terminal is only asked
        # whether somebody is there.
        expected = local and (reply.status_code == 404 or parts.path == "/terminal")
        if reply.status_code >= 400 and not expected:
            LEDGER.note(f"{name} could not be fetched: HTTP {reply.status_code}")
        return reply

    requests.Session.request = request  # type: ignore[method-assign]
