"""Which files of the agent's view can be executed: the few that a desktop needs, and no other.

It is a property of the view's mounts. All forbid execution (``MS_NOEXEC``), which goes for
programs, for scripts and for what the dynamic loader is asked to run, but those of the shared
libraries, of the allowed programs, and of the helpers that these start. What else a machine may
have (a Java below ``/usr/lib``, whatever is below ``/opt``) is to be read and not to be run, as are
all files of the agent's own. A mount cannot be given back from inside what it was denied here: that
takes the rights of the view's maker. Standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import glob
import os
import re
import stat
from collections.abc import Callable, Iterator

LIBRARIES = (
    *("/usr/lib/*-linux-gnu*", "/lib/*-linux-gnu*", "/usr/lib64", "/lib64"),
    "/usr/lib/python3*/lib-dynload",
)
"""Directories of shared libraries, links to one another apart; the last is for the probe."""
PROGRAMS_OWN = ("/usr/lib/chromium", "/usr/lib/libreoffice")
"""Directories with libraries and helpers of allowed programs."""
HELPERS = (
    "/usr/libexec/dconf-service",
    *("/usr/lib/menu-cache/menu-cached", "/usr/libexec/menu-cache/menu-cached"),
    *("/usr/lib/menu-cache/menu-cache-gen", "/usr/libexec/menu-cache/menu-cache-gen"),
)
"""Programs elsewhere: they keep settings, and the list of applications."""
IN_PLACE = (
    *("gio-launch-desktop", "chromium", "chrome_crashpad_handler", "chrome-sandbox"),
    *("oosplash", "soffice.bin", "xpdfimport"),
)
"""Names of programs and helpers in those directories, where more are than a desktop needs."""

_CLONE_NEWNS, _CLONE_NEWUSER = 0x20000, 0x10000000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 1, 2, 4, 8
_MS_REMOUNT, _MS_BIND = 0x20, 0x1000
_KEPT = {"ro": _MS_RDONLY, "nosuid": _MS_NOSUID, "nodev": _MS_NODEV}
"""What a mount already forbids and a change must repeat; times of access are kept without."""
_NOWHERE = (errno.EINVAL, errno.ENOENT, errno.ENOTDIR, errno.EACCES)
"""A mount that is covered by another, or below a directory that no one may enter."""


def executable_places() -> list[str]:
    """Directories and files outside of the command directories that can be executed."""
    libraries = [place for pattern in LIBRARIES for place in sorted(glob.glob(pattern))]
    places = [p for p in (*libraries, *PROGRAMS_OWN, *HELPERS) if os.path.exists(p)]
    return [place for place in places if os.path.realpath(place) == place]


@functools.cache
def strays() -> tuple[str, ...]:
    """Programs beside libraries that no desktop needs, and directories that cannot be read.

    Looked for once: it takes 10 ms and more.
    """
    found: list[str] = []
    pending = list(filter(os.path.isdir, executable_places()))
    while pending:
        directory = pending.pop()
        try:
            entries = list(os.scandir(directory))
        except PermissionError:
            found.append(directory)
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                pending.append(entry.path)
            elif ".so" not in entry.name and entry.name not in IN_PLACE:
                mode = entry.stat(follow_symlinks=False).st_mode
                if stat.S_ISREG(mode) and mode & 0o111:
                    found.append(entry.path)
    return tuple(sorted(found))


def executable_mounts() -> Iterator[str]:
    """Mount points of this process's view on which files can be executed."""
    for place, _ in _mounts():
        # What cannot be looked at cannot be executed either.
        with contextlib.suppress(OSError):
            if not os.statvfs(place).f_flag & os.ST_NOEXEC:
                yield place


def forbid_execution(pid: int, but: str) -> None:
    """Forbid execution in the view of process ``pid``, the directory ``but`` apart, and what it
    holds. For the view's maker, once it is complete. Raises ``OSError``.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    covered = strays()

    def change() -> None:
        _enter(libc, pid)
        _forbid(libc, but, covered)

    _in_child(change)


def _forbid(libc: ctypes.CDLL, but: str, covered: tuple[str, ...]) -> None:
    kept = executable_places()
    for place in kept:
        _mount(libc, place, place, _MS_BIND)
    for place in covered:
        _mount(libc, place, place, _MS_BIND)
    for place, flags in list(_mounts()):
        if place not in kept and place != but and not place.startswith(f"{but}/"):
            try:
                _mount(libc, "none", place, _MS_REMOUNT | _MS_BIND | _MS_NOEXEC | flags)
            except OSError as e:
                if e.errno not in _NOWHERE:
                    raise


def _enter(libc: ctypes.CDLL, pid: int) -> None:
    spaces = [
        (os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC), kind)
        for name, kind in (("user", _CLONE_NEWUSER), ("mnt", _CLONE_NEWNS))
    ]
    for fd, kind in spaces:
        if libc.setns(fd, kind) != 0:
            raise _failed(libc, f"/proc/{pid}/ns")


def _mount(libc: ctypes.CDLL, source: str, target: str, flags: int) -> None:
    if libc.mount(source.encode(), os.fsencode(target), None, ctypes.c_ulong(flags), None) != 0:
        raise _failed(libc, target)


def _failed(libc: ctypes.CDLL, what: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), what)


def _mounts() -> Iterator[tuple[str, int]]:
    """Mount points of this process's view, with those of its flags that must be repeated."""
    with open("/proc/self/mountinfo", "rb") as f:
        for line in f:
            place, options = line.split()[4:6]
            plain = re.sub(rb"\\([0-7]{3})", lambda m: bytes([int(m[1], 8)]), place)
            flags = sum(_KEPT.get(option, 0) for option in options.decode().split(","))
            yield os.fsdecode(plain), flags


def _in_child(job: Callable[[], object]) -> None:
    """Do it in a child process, whose namespaces are its own. Raises ``OSError``."""
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            job()
        except BaseException as e:
            os.write(tell, repr(e).encode()[:1000])
            os._exit(1)
        os._exit(0)
    os.close(tell)
    with os.fdopen(told, "rb") as f:
        complaint = f.read().decode(errors="replace")
    _, status = os.waitpid(child, 0)
    if status != 0:
        raise OSError(complaint or f"the child ended with {status}")
