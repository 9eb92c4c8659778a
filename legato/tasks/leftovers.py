"""Files that were put where a task does not look: by mistake, or to hide them.

Programs keep things of their own below hidden names of the home and in the directories for
temporary files. What lies in such a place is left out by the place, except a copy of what was to
be deleted, which is looked for everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice

from legato.desktop.contract import Machine
from legato.errors import FileTooLarge

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
    """Files of the home that lie in none of these folders, by relative path, and of ``/tmp``.

    Those of programs are left out. Of very many, some; ``None`` if there are too many to list.
    """
    try:
        home, temporary = machine.list_files(machine.home), machine.list_files(TEMPORARY)
    except FileTooLarge:
        return None
    strange = [
        name
        for name in home
        if name.partition("/")[0] not in folders and not _PROGRAMS_HOME.match(name)
    ]
    strange += [f"{TEMPORARY}/{name}" for name in temporary if not _PROGRAMS_TEMPORARY.match(name)]
    return list(islice((name for name in strange if not name.endswith("/")), MAX_NAMED))


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
        paths = list(islice(_outside(machine, folders), MAX_LOOKED_AT + 1))
    except FileTooLarge:
        return None
    if len(paths) > MAX_LOOKED_AT:
        return None
    names = {name.rpartition("/")[2]: name for name in deleted}
    contents = {data: name for name, data in deleted.items()}
    most = max(map(len, contents))
    found = {}
    for path in paths:
        original = names.get(path.rpartition("/")[2])
        if original is None:
            try:
                original = contents.get(machine.read_file(path, limit=most) or b"")
            except FileTooLarge:
                continue
        if original is not None:
            found[path] = original
    return found


def _outside(machine: Machine, folders: tuple[str, ...]) -> Iterator[str]:
    """Full paths of all files that the agent may have made outside of these folders."""
    for root in (machine.home, *WRITABLE):
        for name in machine.list_files(root):
            own = root == machine.home and (
                name.partition("/")[0] in folders or name.startswith(TRASH)
            )
            if not own and not name.endswith("/"):
                yield f"{root}/{name}"
