"""One bubblewrap sandbox running the guest program: its command line and its lifetime.

What is inside is told by :mod:`legato.desktop.guest.enclosure`. Not
bounded by us: memory of processes, and the number of (empty) files, for which an unprivileged
user has no means; put the driver in a control group for that.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import time
from pathlib import Path

from legato.desktop.guest import enclosure
from legato.desktop.guest.nearby import NearbyGuest
from legato.desktop.local import keeper, warden
from legato.desktop.local.options import LocalOptions
from legato.errors import EnvFailure

FIRST_UID, UIDS = 61184, 4096
"""Host user ids for sandboxes of root: systemd's range for short-lived users, so nobody's."""

START_S = 20.0
KILL_S = 20.0


class Sandbox:
    """Implements :class:`~legato.desktop.guest.box.Box`.

    :meth:`kill` may be called from any thread, the rest from one.
    """

    def __init__(self, keep: keeper.Keeper, options: LocalOptions) -> None:
        self._keep = keep
        number, self.directory = keep.directory()
        self.home = enclosure.HOME
        self.scratch = self.directory / "scratch"
        stage = keep.stage(options.home_template)
        self._log = self.directory / "guest.log"
        self._control = self.directory / "control"
        self._lifeline, theirs = socket.socketpair()
        self.first_pid = 0
        """Host pid of the guest program."""
        uid = FIRST_UID + number % UIDS if os.getuid() == 0 else os.getuid()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        log = os.open(self._log, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            listener.bind(str(self._control))
            listener.listen(8)
            argv = _command(options, stage, self._accounts(keep.base))
            keep.start(argv, uid, (theirs.fileno(), listener.fileno(), log))
        except BaseException as e:
            self._lifeline.close()
            if isinstance(e, OSError):
                raise EnvFailure(f"could not start a sandbox: {e}") from e
            raise
        finally:
            theirs.close()
            listener.close()
            os.close(log)

    def connect(self) -> NearbyGuest:
        """The client of the guest program; call it once. Raises ``EnvFailure``."""
        self.first_pid = self._await_start()
        try:
            return NearbyGuest(self._control, deadline_s=START_S)
        except EnvFailure as e:
            raise EnvFailure(f"{e} ({self._log_tail()})") from e

    def kill(self) -> None:
        """Have every process inside killed. Returns at once; idempotent."""
        with contextlib.suppress(OSError):
            self._lifeline.shutdown(socket.SHUT_WR)
        self._keep.wake()

    def wait_gone(self) -> None:
        """Wait until nothing of the sandbox is left, its directory included."""
        self._lifeline.settimeout(KILL_S)
        try:
            while self._lifeline.recv(4096):
                continue
        except TimeoutError:
            raise EnvFailure(f"a killed sandbox was still there after {KILL_S:g} s") from None
        except OSError:
            pass  # reset: the warden is gone, and the kernel has taken the sandbox along
        finally:
            self._lifeline.close()
            shutil.rmtree(self.directory, ignore_errors=True)

    def _await_start(self) -> int:
        self._lifeline.settimeout(START_S)
        said = b""
        try:
            while not said.endswith(b"\n"):
                chunk = self._lifeline.recv(4096)
                if not chunk:
                    raise EnvFailure(f"the sandbox did not start: {self._log_tail()}")
                said += chunk
        except OSError as e:
            raise EnvFailure(f"the sandbox did not start: {e}; {self._log_tail()}") from e
        return int(json.loads(said)["pid"])

    def _log_tail(self) -> str:
        """The last of what bwrap and the guest program complained about."""
        try:
            return self._log.read_text(errors="replace").strip()[-1000:] or "no message"
        except OSError:
            return "no message"

    def _accounts(self, base: Path) -> Path:
        directory = base / "etc"
        with contextlib.suppress(FileExistsError):
            directory.mkdir(0o755)
            directory.chmod(0o755)
        for name, text in enclosure.ACCOUNTS.items():
            path = directory / name
            if not path.exists():
                part = directory / f".{name}.{time.monotonic_ns()}"
                part.write_text(text)
                part.chmod(0o644)
                part.rename(path)
        return directory


def _command(options: LocalOptions, stage: Path, accounts: Path) -> list[str]:
    argv = enclosure.command(
        str(stage),
        str(accounts),
        disk_mib=options.disk_mib,
        ro_bind=map(str, options.ro_bind),
        bwrap_options=("--info-fd", str(warden.INFO_FD)),
    )
    argv += ["--listen-fd", str(warden.LISTEN_FD), "--owner-fd", str(warden.OWNER_FD)]
    return [*argv, "--max-processes", str(options.max_processes)]
