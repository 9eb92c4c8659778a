"""Puts the guest program and the session's files where a machine can mount them."""

from __future__ import annotations

import shutil
from pathlib import Path

from legato.desktop.guest import enclosure, session

MODULES = (
    "__init__",
    "browser",
    "browsers",
    "busy",
    "enclosure",
    "execution",
    "files",
    "frames",
    "launched",
    "loop",
    "mux",
    "probe",
    "processes",
    "program",
    "relay",
    "session",
    "start",
    "view",
    "wire",
)
STAGED = enclosure.STAGED
HOME_FOLDERS = ("Desktop", "Documents", "Downloads")

_MAIN = """\
from legato_guest.start import main

main()
"""


def stage(directory: Path, *, home: Path | None = None) -> None:
    """Fill ``directory``, so that ``/usr/bin/python3 -I -S <directory>`` runs the guest.

    The machine must have it at :data:`STAGED`, which the session's files name, and its
    ``chromium.d`` also at ``/etc/chromium.d``.
    ``home`` is a template for the agent's home, by default a few empty folders. Everything is
    readable by every user, since the guest is not us.
    """
    here = Path(__file__).parent
    package = directory / "legato_guest"
    package.mkdir(parents=True)
    for module in MODULES:
        shutil.copyfile(here / f"{module}.py", package / f"{module}.py")
    (directory / "__main__.py").write_text(_MAIN)
    shutil.copytree(here / "session_files", directory / "session", copy_function=shutil.copyfile)
    for name in ("browser.desktop", "menu.xml"):
        file = directory / "session" / name
        file.write_text(file.read_text().replace("chromium", session.browser_command()))
    (directory / "empty").mkdir()
    (directory / "chromium.d").mkdir()
    (directory / "chromium.d" / "legato").write_text(session.chromium_defaults())
    if home is not None:
        shutil.copytree(home, directory / "home", symlinks=True)
    for folder in HOME_FOLDERS if home is None else ():
        (directory / "home" / folder).mkdir(parents=True)
    for path in (directory, *directory.rglob("*")):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | (0o555 if path.is_dir() else 0o444))
