"""Files of the machine, read and written from inside it.

The agent owns these files and may have left anything in their place: links, fifos, directories
swapped while we look. Inside the machine the worst a path can lead to is what the agent could
read anyway, so nothing here can reach the host.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile

MAX_ENTRIES = 100_000

NOT_THERE = frozenset(
    {
        *(errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG),
        *(errno.EACCES, errno.EPERM, errno.ENXIO, errno.ENODEV),
    }
)
"""What opening says of a file that is not there, is no file, or is not for this user. Anything
else (no descriptors or no memory left, a broken disk) is a failure of the machine."""


class TooLarge(ValueError):  # noqa: N818 - a fact about the file
    """The file has more bytes than the reader wants."""


def read_file(path: str, home: str, limit: int) -> bytes | None:
    """The bytes of a regular file, ``None`` if there is none.

    A link below ``home`` is followed only if it ends below ``home``. Raises :class:`TooLarge`,
    and ``OSError`` if the machine cannot tell.
    """
    real = os.path.realpath(path)
    if _below(path, home) and not _below(real, os.path.realpath(home)):
        return None
    try:
        fd = _open_unlinked(real)
    except OSError as e:
        if e.errno not in NOT_THERE:
            raise
        return None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        return None
    with os.fdopen(fd, "rb") as f:
        data = f.read(limit + 1)
    if len(data) > limit:
        raise TooLarge(f"{path} has more than {limit} bytes")
    return data


def _open_unlinked(path: str) -> int:
    """Open for reading, refusing a link in any component: the path was resolved before.

    ``O_NONBLOCK`` so that a fifo without a writer does not hold us.
    """
    directory = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        *parents, name = [part for part in path.split("/") if part]
        for part in parents:
            flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            deeper = os.open(part, flags, dir_fd=directory)
            os.close(directory)
            directory = deeper
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        return os.open(name, flags, dir_fd=directory)
    finally:
        os.close(directory)


def write_file(path: str, data: bytes, mode: int) -> None:
    """Create or replace a file with its parent directories; a link in its place is replaced."""
    parent = os.path.dirname(path)
    os.makedirs(parent, exist_ok=True)
    fd, temporary = tempfile.mkstemp(dir=parent, prefix=".legato-")
    try:
        with os.fdopen(fd, "wb") as f:
            f.write(data)
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def list_files(path: str) -> list[str]:
    """Relative paths of regular files, links and empty directories (ending in ``/``) below.

    A directory that may not be read is listed like an empty one. Raises :class:`TooLarge` past
    :data:`MAX_ENTRIES`, and ``OSError`` if the machine cannot tell.
    """
    found: list[str] = []
    waiting = [""]
    while waiting:
        below = waiting.pop()
        try:
            with os.scandir(os.path.join(path, below)) as listing:
                entries = sorted(listing, key=lambda e: e.name)
        except OSError as e:
            if e.errno not in NOT_THERE:
                raise
            entries = []
        if not entries and below:
            found.append(below)
        for entry in entries:
            name = below + entry.name
            if entry.is_symlink() or entry.is_file(follow_symlinks=False):
                found.append(name)
            elif entry.is_dir(follow_symlinks=False):
                waiting.append(name + "/")
        if len(found) + len(waiting) > MAX_ENTRIES:
            raise TooLarge(f"{path} holds more than {MAX_ENTRIES} files")
    return sorted(found)


def empty(directory: str) -> None:
    """Remove everything below ``directory``. Raises ``OSError`` or ``RecursionError`` if it
    cannot (the agent may have built something that no unprivileged user can remove quickly)."""
    for entry in os.scandir(directory):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)


def fill(directory: str, template: str) -> None:
    """Copy a template directory's contents, links as links."""
    shutil.copytree(template, directory, symlinks=True, dirs_exist_ok=True)


def _below(path: str, directory: str) -> bool:
    return os.path.normpath(path).startswith(directory.rstrip("/") + "/")
