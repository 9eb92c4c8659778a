"""What the agent's programs see of the machine, and what they can execute: an allow-list.

The machine has two views of its files. The operator's, in which set-up and grading commands run,
is the machine as it is. In the agent's, the directories of commands hold nothing but the few
programs of a desktop: no terminal, no shell, no interpreter, so that no dialog of any program
("open with", a custom action, a file marked executable) can start one. Chromium's managed policy
and the places where a file manager keeps commands of the user's own are read-only there.

What else may lie elsewhere cannot be executed (:mod:`.execution`), and no file is a launcher.

A view is a user and a mount namespace below the machine's. bubblewrap makes it around the window
manager, whose menus start programs as well; ``nsenter`` joins what else belongs there. From
inside it cannot be undone (mount_namespaces(7): mounts that came from a more privileged namespace
are locked), and processes outside it cannot be traced (ptrace(2): another user namespace).
"""

from __future__ import annotations

import json
import os
import select
import time
from collections.abc import Mapping, Sequence

BWRAP, NSENTER = "/usr/bin/bwrap", "/usr/bin/nsenter"

PROGRAMS: Mapping[str, str] = {
    # The programs themselves: their start scripts would need a shell.
    "chromium": "/usr/lib/chromium/chromium",
    "soffice": "/usr/lib/libreoffice/program/oosplash",
    "openbox": "/usr/bin/openbox",
    "tint2": "/usr/bin/tint2",
    "dbus-daemon": "/usr/bin/dbus-daemon",
    "mousepad": "/usr/bin/mousepad",
    "pcmanfm": "/usr/bin/pcmanfm",
    "gpicview": "/usr/bin/gpicview",
    "xarchiver": "/usr/bin/xarchiver",
    # What an archive manager runs.
    "unzip": "/usr/bin/unzip",
    "zip": "/usr/bin/zip",
    "zipinfo": "/usr/bin/zipinfo",
    # Says that the window manager is there.
    "touch": "/usr/bin/touch",
}
"""Name on the agent's ``PATH`` to file; those that are not installed are left out."""

HIDDEN = (
    *("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/games"),
    *("/usr/local/games", "/usr/lib/apt", "/usr/lib/systemd", "/usr/lib/git-core"),
)
"""Directories of commands. Links to one another are skipped."""
SHOWN_AT = "/usr/bin"
"""Where the allowed programs are."""
CHROMIUM_POLICY = "/etc/chromium"
OFFICE_REGISTRY = "/etc/libreoffice/registry"
OFFICE_POLICY = "legato.xcd"
"""Its name among LibreOffice's configuration files; what they finalize, no user can change."""
USER_COMMANDS = (
    *(".local/share/applications", ".local/share/file-manager"),
    *(".local/share/mime", ".local/share/dbus-1"),
)
"""Below home: where a file manager keeps commands that its user typed, and what could make a file
a launcher, or a command a service of the message bus.
"""
USER_SETTINGS = (".config/libfm", ".config/pcmanfm", ".config/xarchiver")
"""Below home: settings that name commands (a terminal, a viewer). Set-up may write them."""
COMMAND_DIALOGS = ("/usr/share/pcmanfm/ui/pref.ui", "/usr/share/libfm/ui/exec-file.ui")
"""Descriptions of dialogs in which such commands are typed, or in which a file of the user's own
is started; no dialog is shown without one.
"""
FILE_TYPES = "/usr/share/mime/mime.cache"
"""Says which files are of which type (shared-mime-info's binary form)."""
MORE_FILE_TYPES = "/usr/local/share/mime"
"""Where a machine's own would be."""
LAUNCHER_TYPE, NO_TYPE = b"\0application/x-desktop\0", b"\0application/x-desktoq\0"
"""A file manager starts what a file of this type names, without a question where it is told to. In
the agent's view no file is of that type: its name there is one that nothing knows. It is as long,
and sorts the same.
"""


class NotLocked(RuntimeError):  # noqa: N818 - what the driver calls it
    """The agent's view could not be made as it must be."""


def view_command(
    home: str, stage: str, info_fd: int, types_fd: int, argv: Sequence[str]
) -> list[str]:
    """bubblewrap's command line that runs ``argv`` in a new view.

    ``types_fd`` is one of :func:`open_types`. Raises :class:`NotLocked` if a helper is missing or
    if this process has more rights than an agent may have.
    """
    for helper in (BWRAP, NSENTER):
        if not os.access(helper, os.X_OK):
            raise NotLocked(f"{helper} is missing")
    if (rights := excess_rights()) is not None:
        raise NotLocked(f"programs of the agent would start {rights}")
    command = [BWRAP, "--dev-bind", "/", "/", "--info-fd", str(info_fd)]
    hidden = [d for d in HIDDEN if os.path.isdir(d) and not os.path.islink(d)]
    for directory in hidden:
        command += ["--tmpfs", directory]
    for name, file in installed_programs().items():
        command += ["--ro-bind" if _is_hidden(file) else "--symlink", file, f"{SHOWN_AT}/{name}"]
    for directory in hidden:
        command += ["--remount-ro", directory]
    if os.path.isdir(CHROMIUM_POLICY):
        command += ["--ro-bind", f"{stage}/session/chromium", CHROMIUM_POLICY]
    if os.path.isdir(OFFICE_REGISTRY):
        command += ["--tmpfs", OFFICE_REGISTRY]
        for name in os.listdir(OFFICE_REGISTRY):
            if os.path.exists(place := f"{OFFICE_REGISTRY}/{name}"):
                command += ["--ro-bind", place, place]
        policy = f"{stage}/session/libreoffice.xcd"
        command += ["--ro-bind", policy, f"{OFFICE_REGISTRY}/{OFFICE_POLICY}"]
        command += ["--remount-ro", OFFICE_REGISTRY]
    for dialog in filter(os.path.isfile, COMMAND_DIALOGS):
        command += ["--ro-bind", "/dev/null", dialog]
    if types_fd >= 0:
        command += ["--ro-bind-data", str(types_fd), FILE_TYPES]
    if os.path.isdir(MORE_FILE_TYPES):
        command += ["--ro-bind", f"{stage}/empty", MORE_FILE_TYPES]
    for below in (*USER_COMMANDS, *USER_SETTINGS):
        place = f"{home}/{below}"
        os.makedirs(place, exist_ok=True)
        # Every directory on the way is a mount of its own: none can be moved out of the way.
        parts = below.split("/")
        for depth in range(1, len(parts)):
            parent = "/".join([home, *parts[:depth]])
            if parent not in command:
                command += ["--bind", parent, parent]
        source = f"{stage}/empty" if below in USER_COMMANDS else place
        command += ["--ro-bind", source, place]
    return [*command, "--chdir", home, "--", *argv]


def open_types() -> int:
    """An inheritable descriptor of the machine's :data:`FILE_TYPES` as the agent's view has them,
    or -1 if it has none. The caller closes it.
    """
    try:
        with open(FILE_TYPES, "rb") as f:
            types = f.read().replace(LAUNCHER_TYPE, NO_TYPE)
    except FileNotFoundError:
        return -1
    fd = os.memfd_create("types", 0)
    os.write(fd, types)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def installed_programs() -> dict[str, str]:
    """Those of :data:`PROGRAMS` that this machine has."""
    return {name: file for name, file in PROGRAMS.items() if os.access(file, os.X_OK)}


def _is_hidden(file: str) -> bool:
    return any(file.startswith(f"{directory}/") for directory in HIDDEN)


def excess_rights() -> str | None:
    """What this process may do that an agent's may not; ``None`` if there is nothing."""
    if os.getuid() == 0 or os.geteuid() == 0:
        return "as root"
    with open("/proc/self/status") as f:
        status = dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)
    # The bounding set means nothing under NoNewPrivs: no program can gain what it allows.
    if any(int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")):
        return "with capabilities"
    if status["NoNewPrivs"] != "1":
        return "able to gain privileges by set-user-id programs"
    return None


def join_command(pid: int, home: str, argv: Sequence[str]) -> list[str]:
    """The command line that runs ``argv`` in the view of process ``pid``."""
    where = [f"--target={pid}", "--user", "--mount", "--preserve-credentials", f"--wdns={home}"]
    return [NSENTER, *where, "--", *argv]


def locate(argv: Sequence[str]) -> list[str]:
    """``argv`` with its program by full path in the view; ``FileNotFoundError`` if not allowed."""
    name, programs = os.path.basename(argv[0]), installed_programs()
    if name not in programs:
        raise FileNotFoundError(
            f"{argv[0]!r} is not among the programs of a locked desktop: "
            f"{', '.join(sorted(programs))}"
        )
    # By its own path where that is to be seen: some look for their files beside it.
    file = programs[name]
    return [f"{SHOWN_AT}/{name}" if _is_hidden(file) else file, *argv[1:]]


def outsiders(pid: int, own: set[int]) -> list[str]:
    """Names of processes that see other files than process ``pid``, those in ``own`` apart."""
    inside = os.stat(f"/proc/{pid}/ns/mnt").st_ino
    found = []
    for other in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        try:
            # A process on its way out has no namespace any more.
            if other not in own and os.stat(f"/proc/{other}/ns/mnt").st_ino != inside:
                with open(f"/proc/{other}/comm") as f:
                    found.append(f.read().strip())
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def read_pid(info: int, deadline: float) -> int:
    """The pid that bubblewrap reports on its ``--info-fd``. Raises :class:`NotLocked`."""
    said = b""
    while (left := deadline - time.monotonic()) > 0:
        if not select.select([info], [], [], left)[0]:
            break
        chunk = os.read(info, 4096)
        said += chunk
        try:
            return int(json.loads(said)["child-pid"])
        except ValueError:
            if not chunk:
                raise NotLocked("bubblewrap could not make the agent's view") from None
    raise NotLocked("bubblewrap did not make the agent's view in time")


_PROBE = "import sys; sys.path.insert(0, sys.argv[2]); from legato_guest.probe import main; main()"


def probe_command(interpreter: int, home: str, stage: str, ports: Sequence[int]) -> list[str]:
    """Run :mod:`.probe` in a view that has no interpreter, by one opened outside of it."""
    program = [f"/proc/self/fd/{interpreter}", "-I", "-S", "-c", _PROBE]
    return [*program, home, stage, *map(str, ports)]


def open_interpreter() -> int:
    """An inheritable descriptor of the system's Python, whose libraries are where the view lets
    them be loaded. The caller closes it.
    """
    fd = os.open(os.path.realpath("/usr/bin/python3"), os.O_PATH)
    os.set_inheritable(fd, True)
    return fd
