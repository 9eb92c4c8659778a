"""Takes the user's clean home and processes as a baseline inside the guest, and goes back to it.

``baseline.py take HOME STORE`` copies the home and lists processes and ``/tmp``; it prints the
SHA-256 of the list, which stays with the caller. ``baseline.py restore HOME STORE SHA256`` ends
every process of the user that is not on the list, checks that none survived, puts back what is
missing or was touched, removes what is new, and prints what it did. It refuses, as ``error``, when
the list or a stored file is not the one that was made: then the agent has been at it, and only a
snapshot is clean.

A file counts as untouched when inode, size, mode, owner and change time are the same; the change
time is the kernel's, which no program can set back.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import stat
import sys
import time
from collections.abc import Iterator
from typing import Any

GRACE_S = 1.0
"""What a program gets to end by itself."""
KILL_S = 10.0
TRIES = 3
"""Rounds of restoring: a baseline program may write while a round goes on."""


class Refused(Exception):  # noqa: N818 - not an error: the caller has another way
    """Only a snapshot is clean."""


def take(home: str, store: str) -> dict[str, Any]:
    shutil.rmtree(store, ignore_errors=True)
    os.makedirs(store, 0o700)
    copy = os.path.join(store, "home")
    os.makedirs(copy)
    files: dict[str, Any] = {}
    for name in _below(home):
        source, target = os.path.join(home, name), os.path.join(copy, name)
        try:
            found = os.lstat(source)
            if not _put(source, target, found):
                continue
            files[name] = [_mark(os.lstat(source)), _mark(os.lstat(target))]
        except FileNotFoundError:
            continue  # written and removed by a running program
    text = json.dumps(
        {
            "files": files,
            "processes": [list(p) for p in _processes()],
            "tmp": sorted(os.listdir("/tmp")),
        }
    )
    with open(os.path.join(store, "list.json"), "w") as file:
        file.write(text)
    return {"sha256": hashlib.sha256(text.encode()).hexdigest(), "files": len(files)}


def restore(home: str, store: str, sha256: str) -> dict[str, Any]:
    try:
        with open(os.path.join(store, "list.json")) as file:
            text = file.read()
    except (OSError, ValueError) as e:
        raise Refused(f"the baseline's list cannot be read: {e}") from None
    if hashlib.sha256(text.encode()).hexdigest() != sha256:
        raise Refused("the baseline's list was changed")
    kept = json.loads(text)
    killed = _end({(int(pid), str(start)) for pid, start in kept["processes"]})
    changed = 0
    for _ in range(TRIES):
        round_changed = _files(home, os.path.join(store, "home"), kept["files"])
        changed += round_changed
        if not round_changed:
            break
    with open(os.path.join(store, "list.json"), "w") as file:
        text = json.dumps(kept)
        file.write(text)
    for name in set(os.listdir("/tmp")) - set(kept["tmp"]):
        try:
            _remove(os.path.join("/tmp", name))
        except OSError:
            continue  # another user's, such as a system service's directory
    return {
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
        "killed": killed,
        "changed": changed,
    }


def _files(home: str, copy: str, kept: dict[str, Any]) -> int:
    """One round; notes the new marks in ``kept`` and returns how many entries were put right."""
    changed = 0
    for name in _below(home):
        if name not in kept:
            _remove(os.path.join(home, name))
            changed += 1
    for name, (mark, stored) in kept.items():  # parents come before what is in them
        live, source = os.path.join(home, name), os.path.join(copy, name)
        try:
            found = os.lstat(live)
            if _mark(found) == mark:
                continue
            if mark[0] == "dir" and stat.S_ISDIR(found.st_mode):
                os.chmod(live, mark[1])
                kept[name] = [_mark(os.lstat(live)), stored]
                continue
        except OSError:
            found = None
        if _mark(os.lstat(source)) != stored:
            raise Refused(f"the baseline's copy of {name} was changed")
        _remove(live)
        _put(source, live, os.lstat(source))
        kept[name] = [_mark(os.lstat(live)), stored]
        changed += 1
    return changed


def _put(source: str, target: str, found: os.stat_result) -> bool:
    """Copy one entry, a directory without its contents; ``False`` for sockets and the like."""
    if stat.S_ISDIR(found.st_mode):
        os.makedirs(target, exist_ok=True)
        shutil.copystat(source, target)
    elif stat.S_ISLNK(found.st_mode):
        os.symlink(os.readlink(source), target)
    elif stat.S_ISREG(found.st_mode):
        shutil.copy2(source, target)
    else:
        return False
    return True


def _mark(found: os.stat_result) -> list[Any]:
    mode = stat.S_IMODE(found.st_mode)
    if stat.S_ISDIR(found.st_mode):
        return ["dir", mode]  # what is in it changes its times; that is looked at by itself
    return ["file", mode, found.st_ino, found.st_size, found.st_uid, found.st_ctime_ns]


def _below(home: str) -> Iterator[str]:
    """Relative paths of all entries, parents first; other file systems (FUSE) are left alone."""
    device = os.lstat(home).st_dev
    pending = [""]
    while pending:
        folder = pending.pop()
        try:
            entries = list(os.scandir(os.path.join(home, folder)))
        except OSError:
            continue
        for entry in entries:
            name = os.path.join(folder, entry.name)
            try:
                found = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            if found.st_dev != device or stat.S_ISSOCK(found.st_mode):
                continue
            yield name
            if stat.S_ISDIR(found.st_mode):
                pending.append(name)


def _processes() -> set[tuple[int, str]]:
    """(pid, start time) of the user's processes, but for this one and those that run it."""
    own, found = _ancestors(), set()
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) in own:
            continue
        try:
            if os.stat(f"/proc/{name}").st_uid != os.getuid():
                continue
            with open(f"/proc/{name}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] != "Z":
            found.add((int(name), fields[19]))
    return found


def _ancestors() -> set[int]:
    own, pid = set(), os.getpid()
    while pid > 0:
        own.add(pid)
        try:
            with open(f"/proc/{pid}/stat") as file:
                pid = int(file.read().rpartition(")")[2].split()[1])
        except OSError:
            break
    return own


def _end(kept: set[tuple[int, str]]) -> int:
    """End every process that is not in ``kept``, those that they start meanwhile included."""
    started = time.monotonic()
    ended: set[tuple[int, str]] = set()
    while True:
        left = _processes() - kept
        if not left:
            return len(ended)
        waited = time.monotonic() - started
        if waited > KILL_S:
            raise Refused(f"{len(left)} processes survived")
        for pid, start in left:
            try:
                os.kill(pid, signal.SIGKILL if waited > GRACE_S else signal.SIGTERM)
            except ProcessLookupError:
                continue
            ended.add((pid, start))
        time.sleep(0.05)


def _remove(path: str) -> None:
    try:
        if stat.S_ISDIR(os.lstat(path).st_mode):
            shutil.rmtree(path)
        else:
            os.unlink(path)
    except FileNotFoundError:
        return  # a running program was faster


def main() -> None:
    action, home, store = sys.argv[1:4]
    try:
        done = take(home, store) if action == "take" else restore(home, store, sys.argv[4])
    except Refused as e:
        done = {"error": str(e)}
    except OSError as e:
        done = {"error": f"{type(e).__name__}: {e}"}
    print(json.dumps(done))


if __name__ == "__main__":
    main()
