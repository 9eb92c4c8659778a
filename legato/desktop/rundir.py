"""Directories that a driver process keeps for its desktops, and the sweep of dead ones.

``<tmp>/legato-<uid>-<random>/`` holds what its owner needs (for local desktops the staged guest
program and one directory per sandbox, with control socket, log and scratch) and ``lock``. An
exclusive ``flock`` on ``lock`` says that the owner lives; the kernel lets go of it however the
owner ends.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import signal
import stat
import tempfile
import time
from pathlib import Path

GRACE_S = 60.0
"""A directory this young may lack its lock because it is just being made."""


def create() -> tuple[Path, int]:
    """Make a run directory; returns it and the descriptor that holds its lock."""
    base = _parent() / f"{_prefix()}{secrets.token_hex(6)}"
    base.mkdir(0o711)
    base.chmod(0o711)  # the sandboxes' users pass through it, whatever our umask
    making = base / "lock.new"
    lock = os.open(making, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    making.rename(base / "lock")  # a sweep never sees a lock that nobody holds yet
    return base, lock


def sweep() -> list[Path]:
    """Remove our run directories whose owner is dead; returns them."""
    swept = []
    for base in _parent().glob(f"{_prefix()}*"):
        try:
            status = base.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
                continue
            if _is_abandoned(base, status.st_mtime):
                _kill_stuck(base)
                shutil.rmtree(base)
                swept.append(base)
        except FileNotFoundError:
            continue  # another sweep was faster
    return swept


def _is_abandoned(base: Path, changed: float) -> bool:
    try:
        lock = os.open(base / "lock", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return time.time() - changed > GRACE_S
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True


def _kill_stuck(base: Path) -> None:
    """Kill what a warden that was killed while it started a sandbox may have left.

    The kernel takes the sandboxes of a dead warden along, but not one whose inner process still
    waits to be told its user id by bwrap's outer one.
    """
    for process in Path("/proc").iterdir():
        try:
            if not process.name.isdigit() or (process / "comm").read_text() != "bwrap\n":
                continue
            if f"\0{base}/".encode() in (process / "cmdline").read_bytes():
                os.kill(int(process.name), signal.SIGKILL)
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue


def _prefix() -> str:
    return f"legato-{os.getuid()}-"


def _parent() -> Path:
    # Memory rather than disk: nothing here is worth keeping, and logs cost no writes.
    shm = Path("/dev/shm")
    return shm if os.access(shm, os.W_OK | os.X_OK) else Path(tempfile.gettempdir())
