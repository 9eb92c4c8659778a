"""Files that were put where a task does not look: by mistake, or to hide them.

Programs keep things of their own below hidden names of the home and in the directory for
temporary files, some for a moment only, and not all of their names are known. So a file there
counts if it has the name or the bytes of one of the task's.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from legato.desktop.contract import Machine
from legato.errors import FileTooLarge
from legato.tasks.seeded import MAX_FILE, MAX_FILES

MAX_NAMED = 200
"""Most files elsewhere that are named to a judge."""
MAX_LOOKED_AT = 2_000
"""Most files among which a copy is looked for."""
TEMPORARY = "/tmp"
WRITABLE = (TEMPORARY, "/dev/shm", "/run/user/1000")
"""What the agent can write to apart from its home."""
TRASH = ".local/share/Trash/"
"""Below home (freedesktop.org, Trash specification 1.0): what is there, is deleted."""
_PROGRAMS_HOME = re.compile(
    r"\.(cache|config|local/share|local/state|dbus|fontconfig|java|pki)/"
    r"|\.(gtk-bookmarks|recently-used\.xbel|ICEauthority|Xauthority|xsession-errors)$"
)
_PROGRAMS_TEMPORARY = re.compile(r"\.?org\.chromium\.|lu\w+\.tmp|OSL_PIPE_|xa-|\.(X|ICE|legato)")
"""Of the browser, the office programs, the archive manager and the session."""


def files_elsewhere(machine: Machine, *folders: str) -> list[str] | None:
    """Files of the home that lie in none of these folders, by relative path.

    Of those under hidden names, and in ``/tmp``, only what has name or bytes of a file in the
    folders. Of very many, some; ``None`` if there are too many to list.
    """
    try:
        home = machine.list_files(machine.home)
        temporary = machine.list_files(TEMPORARY)
        strange = [
            name
            for name in home
            if name.partition("/")[0] not in folders and not _PROGRAMS_HOME.match(name)
        ]
        hidden = [f"{machine.home}/{name}" for name in strange if name.startswith(".")]
        hidden += [f"{TEMPORARY}/{n}" for n in temporary if not _PROGRAMS_TEMPORARY.match(n)]
        hidden = [name for name in hidden if not name.endswith("/")]
        copies = _copies(machine, hidden, _read(machine, folders)) if hidden else {}
    except FileTooLarge:
        return None
    seen = (name for name in strange if not name.startswith(".") and not name.endswith("/"))
    return list(islice((*copies, *seen), MAX_NAMED))


def copies_elsewhere(
    machine: Machine, deleted: Mapping[str, bytes], *folders: str
) -> dict[str, str] | None:
    """Path to original of files in none of these folders that have name or bytes of ``deleted``.

    Wherever the agent can write, places of programs included, but for the trash. ``None`` if
    there are too many files to look at.
    """
    if not deleted:
        return {}
    try:
        return _copies(machine, _outside(machine, folders), deleted)
    except FileTooLarge:
        return None


def _copies(
    machine: Machine, paths: Iterable[str], originals: Mapping[str, bytes]
) -> dict[str, str]:
    """Path to original. Raises ``FileTooLarge`` past ``MAX_LOOKED_AT`` files."""
    names = {name.rpartition("/")[2]: name for name in originals}
    contents = {data: name for name, data in originals.items()}
    most = max(map(len, contents), default=0)
    found = {}
    for number, path in enumerate(paths):
        if number == MAX_LOOKED_AT:
            raise FileTooLarge("too many files to look at")
        original = names.get(path.rpartition("/")[2])
        if original is None:
            with contextlib.suppress(FileTooLarge):
                data = machine.read_file(path, limit=most)
                original = contents.get(data) if data else None
        if original is not None:
            found[path] = original
    return found


def _read(machine: Machine, folders: tuple[str, ...]) -> dict[str, bytes]:
    """What is in these folders of the home, as far as it would be handed to a judge."""
    read = {}
    for folder in folders:
        for name in islice(machine.list_files(f"{machine.home}/{folder}"), MAX_FILES):
            with contextlib.suppress(FileTooLarge):
                data = machine.read_file(f"{machine.home}/{folder}/{name}", limit=MAX_FILE)
                if data is not None:
                    read[name] = data
    return read


def _outside(machine: Machine, folders: tuple[str, ...]) -> Iterator[str]:
    """Full paths of all files that the agent may have made outside of these folders."""
    for root in (machine.home, *WRITABLE):
        for name in machine.list_files(root):
            own = root == machine.home and (
                name.partition("/")[0] in folders or name.startswith(TRASH)
            )
            if not own and not name.endswith("/"):
                yield f"{root}/{name}"
