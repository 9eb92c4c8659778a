"""The host side of a task's web app: its process, its event log, and how it is reached."""

from __future__ import annotations

import json
import os
import selectors
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from legato.errors import EnvFailure, SandboxError
from legato.tasks.confined import NETWORKED
from legato.tasks.host_process import Limits, how_it_ended, last_line, start_confined

SOCKET, EVENTS, STATE = "app.sock", "events.jsonl", "state.json"
"""Files of a server in its folder."""
_LIMITS = Limits(wall_s=20.0, cpu_s=600, memory_bytes=512 * 2**20, output_bytes=64 * 2**20)


class AppServer:
    """One running server; give it to ``Machine.own``."""

    def __init__(self, file: Path, folder: Path, spec: Mapping[str, Any]) -> None:
        """Start ``file`` (see :mod:`legato.tasks.confined`) and wait until it listens.

        Raises :class:`~legato.errors.EnvFailure`.
        """
        self.socket = folder / SOCKET
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._process = start_confined(
                "serve",
                file,
                str(folder),
                limits=_LIMITS,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
            )
        except OSError as e:
            self._stderr.close()
            raise EnvFailure(f"could not start the app server {file.name}: {e}") from e
        try:
            self._start(spec)
        except BaseException:
            self.close()
            raise

    def _start(self, spec: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(spec).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as e:
            raise EnvFailure(f"the app server ended at once{last_line(self._stderr)}") from e
        ends = time.monotonic() + _LIMITS.wall_s
        heard = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while not heard.endswith(b"\n"):
                if not selector.select(max(0.0, ends - time.monotonic())):
                    raise EnvFailure("the app server did not come up in time")
                chunk = os.read(self._process.stdout.fileno(), 4096)
                if not chunk:
                    code = self._process.wait(5.0)
                    how = how_it_ended(code)
                    if code == NETWORKED:
                        raise SandboxError(f"the app server {how}{last_line(self._stderr)}")
                    raise EnvFailure(f"the app server {how}{last_line(self._stderr)}")
                heard += chunk

    def close(self) -> None:
        """End the server. Idempotent."""
        self._process.kill()
        self._process.wait(5.0)
        for file in (self._process.stdin, self._process.stdout, self._stderr):
            if file is not None:
                file.close()


def read_log(folder: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Events and state of a server that still lives.

    Raises :class:`~legato.errors.EnvFailure` if it does not.
    """
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(5.0)
        try:
            # Through a descriptor, because the path of a unix socket is at most 108 bytes.
            inside = os.open(folder / SOCKET, os.O_PATH)
            try:
                probe.connect(f"/proc/self/fd/{inside}")
            finally:
                os.close(inside)
            lines = (folder / EVENTS).read_text(encoding="utf-8").splitlines()
            state = json.loads((folder / STATE).read_text(encoding="utf-8"))
            return [json.loads(line) for line in lines], state
        except (OSError, ValueError) as e:
            raise EnvFailure(f"the task's app server is gone, or its log: {e}") from e
