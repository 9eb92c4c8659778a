"""An engine's socket on another host, brought here by SSH.

The system's own ``ssh`` is used, so hosts, keys and agents are those of ``~/.ssh/config``. Nothing
is asked: what needs a password fails.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

from legato.desktop import rundir
from legato.errors import ConfigError, EnvFailure

ENGINE_SOCKET = "/var/run/docker.sock"
CONNECT_S = 30.0
STOP_S = 5.0


_lock = threading.Lock()
_open: dict[str, tuple[Tunnel, int]] = {}
"""Tunnels of this process by URL, and how many use each."""


def acquire(url: str) -> Tunnel:
    """The tunnel to ``url``; give it back with :func:`release`. Raises as :class:`Tunnel` does."""
    with _lock:
        tunnel, users = _open.get(url, (None, 0))
        if tunnel is None or not tunnel.alive:
            tunnel, users = Tunnel(url), 0
        _open[url] = tunnel, users + 1
        return tunnel


def release(tunnel: Tunnel) -> None:
    """The last release ends it."""
    with _lock:
        current, users = _open.get(tunnel.url, (None, 0))
        if current is tunnel and users > 1:
            _open[tunnel.url] = tunnel, users - 1
            return
        if current is tunnel:
            del _open[tunnel.url]
    tunnel.close()


class Tunnel:
    """An ``ssh`` that forwards a unix socket of ours to the engine's, until closed."""

    def __init__(self, url: str) -> None:
        """``ssh://[user@]host[:port][/path/of/the/socket]``; raises ``EnvFailure``."""
        self.url = url
        target = urlsplit(url)
        ssh = shutil.which("ssh")
        if ssh is None:
            raise ConfigError(f"{url} needs the ssh command: apt-get install openssh-client")
        if not target.hostname or target.password is not None:
            raise ConfigError(f"{url!r} is not of the form ssh://[user@]host[:port][/socket]")
        self._directory, self._lock = rundir.create()
        socket = self._directory / "engine.sock"
        self.address = f"unix://{socket}"
        argv = [ssh, "-o", "BatchMode=yes", "-o", "ExitOnForwardFailure=yes"]
        argv += ["-o", f"ConnectTimeout={CONNECT_S:g}", "-o", "ServerAliveInterval=15"]
        argv += ["-L", f"{socket}:{target.path.rstrip('/') or ENGINE_SOCKET}"]
        argv += ["-p", str(target.port)] if target.port else []
        argv += ["-l", target.username] if target.username else []
        log = self._directory / "log"
        try:
            with log.open("wb") as said:
                # The far command ends with our end of its input, so with us, however we end.
                self._process = subprocess.Popen(
                    [*argv, "--", target.hostname, "exec cat >/dev/null"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=said,
                    start_new_session=True,
                )
            self._await(socket, log, url)
        except BaseException:
            self.close()
            raise

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        """Idempotent."""
        process = getattr(self, "_process", None)
        if process is not None:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_S)
            process.kill()
            process.wait()
            if process.stdin is not None:
                process.stdin.close()
        if self._lock >= 0:
            shutil.rmtree(self._directory, ignore_errors=True)
            os.close(self._lock)
            self._lock = -1

    def _await(self, socket: Path, log: Path, url: str) -> None:
        deadline = time.monotonic() + CONNECT_S
        while not socket.exists():
            try:
                self._process.wait(0.05)
            except subprocess.TimeoutExpired:
                if time.monotonic() < deadline:
                    continue
                raise EnvFailure(f"{url} did not answer within {CONNECT_S:g} s") from None
            said = log.read_text(errors="replace").strip()
            raise EnvFailure(f"ssh could not reach {url}: {said[-500:]}")
