"""A board within reach of a viewer: a unix socket in the run directory, answered on demand.

Nothing is written or encoded unless somebody asks, and what is gone with its process leaves at
most a dead socket behind. ``RUN_DIR/live/<pid>.<n>.sock`` takes one line per connection::

    state\\n           -> the board's snapshot as JSON
    shot <sha256>\\n   -> the PNG of a screenshot that a snapshot named just now; else empty

The folder is open to its owner only.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import os
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Protocol

from legato.rl.schema import dump_json

FOLDER = "live"
DEADLINE_S = 5.0
"""Longest that one question and its answer may take, on either side."""
MAX_LINE = 200

_numbers = itertools.count()
log = logging.getLogger(__name__)


class Shown(Protocol):
    """What a viewer may ask for; either answer may take :data:`DEADLINE_S` at most."""

    async def look(self) -> dict[str, Any]:
        """The board's snapshot."""
        ...

    async def picture(self, sha256: str) -> bytes | None:
        """The PNG of a screenshot that a snapshot named just now."""
        ...


@contextlib.asynccontextmanager
async def published(board: Shown, run_dir: Path) -> AsyncIterator[None]:
    """Answer viewers of ``run_dir`` for as long as the block runs.

    A directory that cannot hold a socket (some network file systems) costs the live view, with a
    warning, and never the batch.
    """
    with contextlib.ExitStack() as cleanup:
        server: asyncio.Server | None = None
        try:
            listening = cleanup.enter_context(_listening(run_dir / FOLDER))
            server = await asyncio.start_unix_server(
                lambda reader, writer: _answer(board, reader, writer), sock=listening
            )
        except OSError as e:
            log.warning("no live view of %s: %s", run_dir, e.strerror or e)
        try:
            yield
        finally:
            if server is not None:
                server.close()


def withdraw(run_dir: Path) -> None:
    """Remove this process's sockets, for an exit that leaves no block."""
    for name in sockets(run_dir):
        if name.startswith(f"{os.getpid()}."):
            (run_dir / FOLDER / name).unlink(missing_ok=True)


def sockets(run_dir: Path) -> list[str]:
    """Names of the sockets in a run directory, those of dead processes included."""
    try:
        return sorted(p.name for p in (run_dir / FOLDER).iterdir() if p.suffix == ".sock")
    except FileNotFoundError:
        return []


def read_state(run_dir: Path, name: str) -> dict[str, Any]:
    """Ask the socket ``name`` for its board; blocking.

    Raises ``OSError`` if its process is gone or too slow, ``ValueError`` if it was cut off.
    """
    state: dict[str, Any] = json.loads(_ask(run_dir, name, "state"))
    return state


def read_shot(run_dir: Path, name: str, sha256: str) -> bytes | None:
    """The PNG that a board names, ``None`` if it shows it no more; raises ``OSError``."""
    return _ask(run_dir, name, f"shot {sha256}") or None


def _ask(run_dir: Path, name: str, line: str) -> bytes:
    with _reachable(run_dir / FOLDER) as folder, socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(DEADLINE_S)
        connection.connect(f"{folder}/{name}")
        connection.sendall(line.encode("ascii") + b"\n")
        answer = bytearray()
        while part := connection.recv(1 << 16):
            answer += part
    return bytes(answer)


async def _answer(board: Shown, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        async with asyncio.timeout(DEADLINE_S):
            question = (await reader.readline())[:MAX_LINE].decode("ascii", "replace").split()
            match question:
                case ["state"]:
                    writer.write(dump_json(await board.look()))
                case ["shot", name]:
                    writer.write(await board.picture(name) or b"")
            await writer.drain()
    except (TimeoutError, OSError, ValueError):
        pass  # a viewer that went away, hung or sent no line; it gets no answer
    finally:
        writer.close()


@contextlib.contextmanager
def _listening(folder: Path) -> Iterator[socket.socket]:
    folder.mkdir(mode=0o700, exist_ok=True)
    _sweep(folder)
    path = folder / f"{os.getpid()}.{next(_numbers)}.sock"
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _reachable(folder) as short:
            listening.bind(f"{short}/{path.name}")
        yield listening
    finally:
        listening.close()
        path.unlink(missing_ok=True)


def _sweep(folder: Path) -> None:
    """Remove the sockets of processes that are gone."""
    for name in sockets(folder.parent):
        try:
            _ask(folder.parent, name, "")
        except ConnectionRefusedError:
            (folder / name).unlink(missing_ok=True)
        except OSError:
            continue


@contextlib.contextmanager
def _reachable(folder: Path) -> Iterator[str]:
    """A short name for ``folder``: the address of a unix socket holds 107 bytes at most."""
    fd = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{fd}"
    finally:
        os.close(fd)
