"""The driver's side of the guest program. Every call has a deadline; none is ever repeated."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from legato.desktop.contract import Completed
from legato.desktop.guest import wire
from legato.desktop.ready import Signals
from legato.desktop.x11.display import Display
from legato.desktop.x11.screen import Screen
from legato.errors import EnvFailure, FileTooLarge, SandboxError

REPLY_S = 10.0
"""Deadline of a call that only has to be answered, in seconds."""
FILE_S = 60.0
CLEAN_S = 30.0
PROBE_S = 20.0


class GuestClient(ABC):
    """One connection to one guest. Used by one thread at a time, but for :meth:`cut`.

    All methods raise ``EnvFailure`` naming the call when the guest is gone, answers with an
    error or does not answer in time; the connection is of no use after the first and last.

    What differs with the way to the machine is left to
    :class:`~legato.desktop.guest.nearby.NearbyGuest` (same kernel: descriptors are passed) and
    :class:`~legato.desktop.guest.remote.RemoteGuest` (a stream of bytes is all there is).
    """

    def __init__(self, sock: socket.socket, *, deadline_s: float = REPLY_S) -> None:
        """``sock`` is connected to a guest program, and owned; it is closed if this raises."""
        self._sock = sock
        try:
            self._call("ping", deadline_s)
        except EnvFailure:
            self.close()
            raise

    @abstractmethod
    def start_session(self, width: int, height: int, *, timeout: float) -> tuple[int, Screen]:
        """Start the X session.

        Returns a fresh connection to the X server, owned by the caller, and its screen.
        """

    @abstractmethod
    def signals(self, display: Display) -> Signals:
        """What the ready signal is made of, for the session that ``display`` shows."""

    @abstractmethod
    def expose(self, port: int, server: Path) -> None:
        """Let the guest's ``127.0.0.1:port`` lead to the server on the unix socket ``server``."""

    def cut(self) -> None:
        """End the connection, from any thread; a call that waits in it fails at once."""
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # not connected any more

    def close(self) -> None:
        self._sock.close()

    def ping(self) -> None:
        self._call("ping", REPLY_S)

    def clean(self) -> None:
        """Kill every process of the machine and restore its files.

        Raises ``EnvFailure`` if anything of the agent outlived it: build the machine anew.
        """
        self._call("clean", CLEAN_S)

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout: float,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> Completed:
        """Run a command to its end; one that takes longer than ``timeout`` s is killed."""
        reply, blob, _ = self._call(
            "run", timeout + REPLY_S, argv=list(argv), timeout=timeout, env=dict(env or {}), cwd=cwd
        )
        return _completed(reply, blob, _name(argv), timeout)

    def launch(
        self, argv: Sequence[str], env: Mapping[str, str] | None = None, *, locked: bool = False
    ) -> int:
        """Start a program and return its pid in the guest at once.

        With ``locked`` it runs in the agent's view; only the programs of a desktop are there.
        """
        reply, _, _ = self._call(
            "launch", REPLY_S, argv=list(argv), env=dict(env or {}), locked=locked
        )
        return int(reply["pid"])

    def probe(self, ports: Sequence[int]) -> Completed:
        """What a program of the agent finds when it tries the lockdown (:mod:`.probe`)."""
        reply, blob, _ = self._call("probe", PROBE_S + REPLY_S, timeout=PROBE_S, ports=list(ports))
        return _completed(reply, blob, "the lockdown's probe", PROBE_S)

    def outsiders(self) -> list[str]:
        """Names of programs that run outside of the agent's view, our own apart."""
        reply, _, _ = self._call("outsiders", REPLY_S)
        return list(reply["programs"])

    def launched(self, pid: int) -> tuple[int | None, str]:
        """Exit code (``None`` while it runs) and last output of a launched program."""
        reply, _, _ = self._call("process", REPLY_S, pid=pid)
        return reply["code"], reply["said"]

    def write_file(self, path: str, data: bytes, mode: int) -> None:
        self._call("write_file", FILE_S, data, path=path, mode=mode)

    def read_file(self, path: str, limit: int) -> bytes | None:
        """Raises :class:`~legato.errors.FileTooLarge` for a file over ``limit`` bytes."""
        reply, blob, _ = self._call("read_file", FILE_S, path=path, limit=limit)
        return blob if reply["found"] else None

    def list_files(self, path: str) -> list[str]:
        reply, _, _ = self._call("list_files", FILE_S, path=path)
        return list(reply["files"])

    def freeze(self) -> None:
        self._call("freeze", 2 * REPLY_S)

    def begin(self) -> None:
        """From now on :meth:`lost` tells of what ends; what has ended before is forgotten."""
        self._call("begin", REPLY_S)

    def lost(self) -> list[str]:
        """Names of what ended since :meth:`begin` though the agent did not end it."""
        reply, _, _ = self._call("lost", REPLY_S)
        return list(reply["names"])

    def busy_seconds(self) -> float:
        reply, _, _ = self._call("busy", REPLY_S)
        return float(reply["seconds"])

    def pending_requests(self) -> int:
        reply, _, _ = self._call("pending", REPLY_S)
        return int(reply["requests"])

    def _call(
        self, op: str, seconds: float, blob: bytes = b"", fds: Sequence[int] = (), /, **args: Any
    ) -> tuple[dict[str, Any], bytes, list[int]]:
        with self._within(op, seconds) as deadline:
            wire.send(self._sock, {"op": op, **args}, blob, fds, deadline=deadline)
            header, data, received = self._reply(deadline)
        if "error" in header:
            for fd in received:
                os.close(fd)
            raise failure(op, header)
        return header, data, received

    def _reply(self, deadline: float) -> tuple[dict[str, Any], bytes, list[int]]:
        return wire.receive(self._sock, deadline=deadline)

    @contextlib.contextmanager
    def _within(self, op: str, seconds: float) -> Iterator[float]:
        """A deadline for an exchange; what goes wrong in it is told as ``EnvFailure``."""
        try:
            yield time.monotonic() + seconds
        except TimeoutError:
            self.cut()  # a late reply must not be taken for the next call's
            raise EnvFailure(f"the guest program did not answer {op!r} in {seconds:g} s") from None
        except (OSError, ValueError) as e:
            self.cut()
            raise EnvFailure(f"the machine was lost during {op!r}: {self._why(e)}") from e

    def _why(self, e: Exception) -> str:
        return str(e)


_FAILURES: Mapping[str, type[EnvFailure]] = {"NotLocked": SandboxError, "TooLarge": FileTooLarge}


def failure(op: str, header: Mapping[str, Any]) -> EnvFailure:
    """What to raise for a reply that tells of an error."""
    return _FAILURES.get(header["kind"], EnvFailure)(f"{op}: {header['error']}")


def _completed(reply: Mapping[str, Any], blob: bytes, name: str, timeout: float) -> Completed:
    cut = reply["stdout_bytes"]
    out, err = (part.decode("utf-8", "replace") for part in (blob[:cut], blob[cut:]))
    if reply["timed_out"]:
        raise EnvFailure(f"{name} did not end within {timeout:g} s: {err[-500:]}")
    return Completed(reply["code"], out, err)


def _name(argv: Sequence[str]) -> str:
    line = " ".join(argv)
    return line if len(line) <= 80 else line[:77] + "..."
