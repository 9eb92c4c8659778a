"""The worker process of one desktop: started, spoken to, and ended with everything it owns."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import legato
from legato.desktop.guest import wire
from legato.desktop.osworld.environment import Environment
from legato.errors import ActionError, ConfigError, EnvFailure, GradeFailure, LegatoError

log = logging.getLogger(__name__)

_WORKER = "legato.desktop.osworld.worker"
CLOSE_S = 10.0
"""What a worker gets to remove its machine by itself once the socket is closed."""
_TAIL = 2000


class WorkerProcess:
    """Runs in OSWorld's environment with nothing of ours but the package ``legato`` itself.

    One thread at a time, but for :meth:`kill`.
    """

    def __init__(
        self, environment: Environment, cwd: Path, desktop: str, program: str = _WORKER
    ) -> None:
        self._environment, self._desktop = environment, desktop
        self._owned: dict[str, Any] = {}
        self._dead = threading.Event()
        self._ending = threading.Lock()
        self._ended = False
        self.folder = Path(tempfile.mkdtemp(prefix=f"legato-osworld-{desktop}-"))
        interpreter = [str(environment.python), "-u", "-m"]
        ours, theirs = socket.socketpair()
        self._channel = ours
        try:
            (self.folder / "lib").mkdir()
            # The package alone: what is installed beside it is the trainer's.
            (self.folder / "lib" / "legato").symlink_to(Path(legato.__file__).parent)
            with theirs, open(self.folder / "log", "wb") as output:
                self._process = subprocess.Popen(
                    [*interpreter, program, str(theirs.fileno()), str(self.folder)],
                    cwd=cwd,
                    env=self._variables(),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
        except OSError as e:
            ours.close()
            shutil.rmtree(self.folder, ignore_errors=True)
            raise EnvFailure(f"OSWorld's worker did not start: {e}") from e

    def call(
        self, op: str, arguments: dict[str, Any], timeout: float, sent: bytes = b""
    ) -> tuple[Any, bytes]:
        """The result and the blob of one call.

        Raises what the worker says, and :class:`~legato.errors.EnvFailure` if it is gone or does
        not answer within ``timeout`` seconds; then it is killed.
        """
        deadline = time.monotonic() + timeout
        try:
            wire.send(self._channel, {"op": op, **arguments}, sent, deadline=deadline)
            while True:
                reply, blob, _ = wire.receive(self._channel, deadline=deadline)
                if "own" not in reply:
                    break
                self._owned.update(reply["own"])
        except TimeoutError:
            self.kill()
            raise EnvFailure(
                f"OSWorld's worker did not answer {op!r} within {timeout:g} s; it was killed"
            ) from None
        except (OSError, ValueError):
            said = self._said()
            self.kill()
            raise EnvFailure(f"OSWorld's worker ended during {op!r}{said}") from None
        if "error" in reply:
            raise _error(reply["error"])
        return reply["result"], blob

    def owns(self, **what: Any) -> None:
        """Note what is to be removed should the worker be unable to."""
        self._owned.update(what)

    def kill(self) -> None:
        """End the worker and its machine. Thread-safe, idempotent; blocks for seconds at most."""
        self._dead.set()
        with contextlib.suppress(OSError):
            self._channel.shutdown(socket.SHUT_RDWR)  # the worker's lifeline
        with self._ending:
            if self._ended:
                return
            self._ended = True
            try:
                self._process.wait(CLOSE_S)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait(CLOSE_S)
            if self._process.returncode != 0:
                self._clean_up()
            self._channel.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    def _clean_up(self) -> None:
        """What the worker was not able to do."""
        if pid := self._owned.get("pid"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self._owned.get("provider") == "docker":
            try:
                subprocess.run(
                    [self._environment.python, "-m", f"{_WORKER}.owner", self._desktop],
                    cwd=self.folder,
                    env=self._variables(),
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=60,
                    check=True,
                )
            except (OSError, subprocess.SubprocessError) as e:
                log.warning("containers of desktop %s may be left: %s", self._desktop, e)

    def _variables(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
        return {**kept, "PYTHONPATH": str(self.folder / "lib"), "PYTHONDONTWRITEBYTECODE": "1"}

    def _said(self) -> str:
        if self._dead.is_set():
            return ": it was killed"
        with contextlib.suppress(OSError):
            text = (self.folder / "log").read_bytes()[-_TAIL:].decode(errors="replace").strip()
            if text:
                return f": {text.splitlines()[-1]}"
        return ""


def _error(error: dict[str, Any]) -> LegatoError:
    message, transient = str(error["message"]), bool(error["transient"])
    match error["kind"]:
        case "config":
            return ConfigError(message)
        case "action":
            return ActionError(message)
        case "grade":
            return GradeFailure(message, transient=transient)
    return EnvFailure(message, transient=transient)
