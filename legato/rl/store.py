"""Files that survive a crash at any byte: the ground a run directory stands on.

Three rules carry everything above:

* a blob is named by the SHA-256 of its bytes and appears under that name only once it is whole
  and on disk (temporary name, fsync, rename, fsync of the directory);
* a log is a file of JSON lines with one writer; a line is appended after every blob it refers to,
  in one write, and a torn last line does not exist for readers and is cut by the next writer;
* a lock held by the kernel, so gone with its process, keeps a second writer out.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from legato.errors import ConfigError, DiskFullError, StorageError

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NAME = re.compile(r"[0-9a-f]{64}")
_BLOCK = 1 << 16


def sha256(data: bytes) -> str:
    """Hex SHA-256: the name of a blob."""
    return hashlib.sha256(data).hexdigest()


@contextlib.contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn an ``OSError`` about ``path`` into a :class:`StorageError` that says what to do."""
    try:
        yield
    except OSError as e:
        if e.errno in _FULL:
            raise DiskFullError(
                f"no space left for {path} ({e.strerror}); every record before it is safe: free "
                "some space and run the same command again to resume"
            ) from e
        raise StorageError(f"{path}: {e.strerror or e}") from e


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Write a whole file, put in the place of ``path`` only when the block ends without error.

    What a killed writer of the same path left behind is removed; a living one is not disturbed.
    """
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        _sweep_replacements(path)
        file = _locked_sibling(path)
        temp = Path(file.name)
        try:
            with file:
                yield file
                file.flush()
                os.fsync(file.fileno())
                os.replace(temp, path)
        except BaseException:
            temp.unlink(missing_ok=True)
            raise
        sync_directory(path.parent)


def _locked_sibling(path: Path) -> BinaryIO:
    while True:
        temp = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
        file = open(temp, "xb")  # noqa: SIM115 - the caller closes it
        fcntl.flock(file, fcntl.LOCK_EX)
        if temp.exists():
            return file
        # Another writer swept it between its creation and the lock.
        file.close()


def _sweep_replacements(path: Path) -> None:
    for stale in path.parent.glob(f".{path.name}.*.part"):
        with contextlib.suppress(FileNotFoundError), open(stale, "rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            stale.unlink()


@contextlib.contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """Fill a new folder that takes the place of ``path`` when the block ends without error.

    For what can be made again: it is not synced, and between two renames there is none. What a
    killed writer of the same path left behind is removed; a living one is not disturbed.
    """
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        _sweep_folders(path)
        part, lock = _locked_folder(path)
        try:
            yield part
            if path.exists():
                old = part.with_suffix(".old")
                path.rename(old)
                part.rename(path)
                shutil.rmtree(old, ignore_errors=True)  # or by the next writer
            else:
                part.rename(path)
        finally:
            shutil.rmtree(part, ignore_errors=True)
            os.close(lock)


def _locked_folder(path: Path) -> tuple[Path, int]:
    while True:
        part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
        part.mkdir()
        with contextlib.suppress(FileNotFoundError):
            lock = os.open(part, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if part.exists():
                return part, lock
            os.close(lock)
        # Another writer swept it between its creation and the lock.


def _sweep_folders(path: Path) -> None:
    left = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{8}}\.(part|old)")
    for stale in [entry for entry in path.parent.iterdir() if left.fullmatch(entry.name)]:
        try:
            lock = os.open(stale, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(stale, ignore_errors=True)
        except BlockingIOError:
            pass
        finally:
            os.close(lock)


def sync_directory(path: Path) -> None:
    """Make the names created in a directory durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_all(fd: int, data: bytes) -> None:
    """``os.write`` until everything is written; the kernel may take a part at a time."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


class Lock:
    """Exclusive right to write a directory, held until closed or until this process ends."""

    def __init__(self, path: Path) -> None:
        with storage_errors(path):
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._fd, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(self._fd)
            raise ConfigError(
                f"{path.parent} is being written by another process (pid {holder}); wait for it "
                "to end or choose another --out"
            ) from None
        # The pid only helps people; on a full disk the lock itself still works.
        with contextlib.suppress(OSError):
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Blobs:
    """Files named by the SHA-256 of their bytes, each stored once. One writer at a time."""

    def __init__(self, folder: Path, suffix: str) -> None:
        self.folder = folder
        self._suffix = suffix
        self._scratch = folder / ".partial"
        self._unsynced = False

    def open_for_writing(self) -> None:
        """Create the folder and drop what an interrupted writer left half done."""
        with storage_errors(self.folder):
            self._scratch.mkdir(parents=True, exist_ok=True)
            for stale in self._scratch.iterdir():
                stale.unlink()
            # A crash may have come between a rename and the sync that makes it last.
            sync_directory(self.folder)

    def path(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise StorageError(f"{name!r} is not the name of a stored file (64 hex digits)")
        return self.folder / f"{name}{self._suffix}"

    def put(self, blobs: Mapping[str, bytes]) -> None:
        """Store each blob under its name; all are whole and durable on return.

        Raises :class:`DiskFullError` or :class:`StorageError`; whole blobs stored until then stay.
        """
        for name, data in blobs.items():
            final = self.path(name)
            if final.exists():
                continue
            temp = self._scratch / final.name
            with storage_errors(final):
                try:
                    fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
                    try:
                        write_all(fd, data)
                        os.fsync(fd)
                    finally:
                        os.close(fd)
                except BaseException:
                    temp.unlink(missing_ok=True)
                    raise
                self._unsynced = True
                os.rename(temp, final)
        if self._unsynced:
            with storage_errors(self.folder):
                sync_directory(self.folder)
            self._unsynced = False

    def get(self, name: str) -> bytes:
        """The bytes of a blob; raises :class:`StorageError` if missing or not what was stored."""
        path = self.path(name)
        with storage_errors(path):
            data = path.read_bytes()
        if sha256(data) != name:
            raise StorageError(f"{path} is damaged: its bytes no longer match its name")
        return data


class Log:
    """The writing end of a file of JSON lines. One writer at a time."""

    def __init__(self, path: Path, end: int) -> None:
        """Continue after byte ``end``; what lies behind it is a torn line and is cut off."""
        self.path = path
        self._end = end
        with storage_errors(path):
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            self._cut()
            sync_directory(path.parent)

    def append(self, line: bytes) -> None:
        """Add one line (without its newline), durable on return; after an error, not at all."""
        data = line + b"\n"
        with storage_errors(self.path):
            self._cut()
            try:
                write_all(self._fd, data)
                os.fsync(self._fd)
            except BaseException:
                # If even this fails the torn line stays, and the next append or reader meets it.
                with contextlib.suppress(OSError):
                    self._cut()
                raise
            self._end += len(data)

    def _cut(self) -> None:
        if os.fstat(self._fd).st_size > self._end:
            os.ftruncate(self._fd, self._end)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def whole_lines(path: Path) -> int:
    """How many bytes of a log are whole lines, found from its end: the cost is that of a line."""
    try:
        file = open(path, "rb")  # noqa: SIM115 - closed below
    except FileNotFoundError:
        return 0
    with storage_errors(path), file:
        at = file.seek(0, os.SEEK_END)
        while at > 0:
            start = max(0, at - _BLOCK)
            file.seek(start)
            newline = file.read(at - start).rfind(b"\n")
            if newline >= 0:
                return start + newline + 1
            at = start
    return 0


def read_log(path: Path, start: int = 0) -> Iterator[tuple[dict[str, Any], int]]:
    """Every whole line of a log as (object, offset just behind it); memory of one line.

    ``start`` is such an offset, for readers that follow a log.
    Works while the file is being written. A torn last line is left out; a missing file has no
    lines; a damaged line before the last raises :class:`StorageError`.
    """
    if not path.exists():
        return
    with storage_errors(path), open(path, "rb") as file:
        offset, bad = start, 0
        file.seek(start)
        for number, line in enumerate(file, start=1):
            if bad:
                after = f" after byte {start}" if start else ""
                raise StorageError(
                    f"{path}, line {bad}{after} is damaged; move the line out of the file to go on "
                    "without that record"
                )
            offset += len(line)
            if not line.endswith(b"\n"):
                return
            try:
                value = json.loads(line)
            except ValueError:
                value = None
            if isinstance(value, dict):
                yield value, offset
            else:
                bad = number
