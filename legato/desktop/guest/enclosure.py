"""The namespaces that a guest runs in on a machine that is not its alone: bubblewrap's command.

Inside are namespaces of its own for users, processes, network, IPC, host name and mounts. The
agent's user has no privileges, and sees of the machine only ``/usr``, parts of ``/etc`` (fonts,
toolkit and library configuration), and what ``ro_bind`` adds, all read-only. What it can write
to is memory of a bounded size: home, ``/tmp``, ``/dev/shm`` and its runtime directory.

Run by itself, with the driver at its standard input and output, this module becomes bubblewrap
and so the guest: that is how one starts in a sandbox of a provider. Standard library only.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Mapping

BWRAP = "/usr/bin/bwrap"
STAGED = "/opt/legato"
"""Where the guest program is, on the machine and inside."""
HOME = "/home/user"
RUNTIME = "/run/user/1000"
UID = 1000
"""The agent's user id as seen inside."""

# fmt: off
ETC = (
    "alternatives", "bash.bashrc", "chromium", "dconf", "debian_version", "default/locale",
    "fonts", "gtk-2.0", "gtk-3.0", "gtk-4.0", "ld.so.cache", "ld.so.conf", "ld.so.conf.d",
    "libreoffice", "mime.types", "opt/chrome", "os-release", "pango", "profile", "pulse",
    "python3", "python3.11", "python3.12", "python3.13", "ssl/certs", "vte", "X11", "xdg",
)
# fmt: on
"""What of ``/etc`` a desktop sees, where it exists."""

ACCOUNTS: Mapping[str, str] = {
    "passwd": (
        "root:x:0:0:root:/root:/usr/sbin/nologin\nuser:x:1000:1000:user:/home/user:/bin/bash\n"
    ),
    "group": "root:x:0:\nuser:x:1000:\n",
    "hosts": "127.0.0.1 localhost desktop\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    "machine-id": "6c656761746f6c6f63616c6465736b74\n",
}
"""Files of ``/etc`` that are the same on every desktop."""


def command(
    stage: str,
    accounts: str,
    *,
    disk_mib: int,
    ro_bind: Iterable[str] = (),
    bwrap_options: Iterable[str] = (),
) -> list[str]:
    """The command line of a guest, to which its own options are to be added.

    ``stage`` and ``accounts`` are directories with the guest program and with :data:`ACCOUNTS`.
    """
    size = str(disk_mib * 2**20)
    argv = [BWRAP, "--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc"]
    argv += ["--unshare-uts", "--unshare-cgroup-try", "--hostname", "desktop", "--as-pid-1"]
    argv += ["--die-with-parent", "--uid", str(UID), "--gid", str(UID), "--clearenv"]
    argv += [*bwrap_options, "--proc", "/proc", "--dev", "/dev", "--ro-bind", "/usr", "/usr"]
    for name in ("/bin", "/sbin", "/lib", "/lib32", "/lib64"):
        if os.path.islink(name):
            argv += ["--symlink", os.readlink(name), name]
        else:
            argv += ["--ro-bind-try", name, name]
    for name in ETC:
        argv += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    for name in ACCOUNTS:
        argv += ["--ro-bind", f"{accounts}/{name}", f"/etc/{name}"]
    argv += ["--ro-bind-try", "/opt/google", "/opt/google"]
    argv += ["--ro-bind-try", "/var/cache/fontconfig", "/var/cache/fontconfig"]
    for path in ro_bind:
        argv += ["--ro-bind", path, path]
    argv += ["--ro-bind", stage, STAGED, "--ro-bind", f"{stage}/chromium.d", "/etc/chromium.d"]
    small = str(64 * 2**20)
    writable = (
        (HOME, "0700", size),
        ("/tmp", "1777", size),
        ("/dev/shm", "1777", size),
        (RUNTIME, "0700", small),
        ("/run/desk", "0700", small),
    )
    for place, mode, bytes_ in writable:
        argv += ["--perms", mode, "--size", bytes_, "--tmpfs", place]
    # What bwrap made to hold all this is memory too, without a bound.
    argv += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", HOME]
    return [*argv, "/usr/bin/python3", "-I", "-S", STAGED, "--home", HOME, "--runtime", RUNTIME]


def main() -> None:
    """Become a guest whose driver is at standard input and output. The machine must have it at
    :data:`STAGED`, with the accounts in ``etc`` below that.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--disk-mib", type=int, required=True)
    parser.add_argument("--max-processes", type=int, required=True)
    options = parser.parse_args()
    if os.getuid() == 0:
        # Seen from outside, too, the guest must own nothing of the machine.
        os.setgroups([])
        os.setresgid(UID, UID, UID)
        os.setresuid(UID, UID, UID)
    os.chdir("/")
    argv = command(STAGED, f"{STAGED}/etc", disk_mib=options.disk_mib)
    os.execv(BWRAP, [*argv, "--stdio", "--max-processes", str(options.max_processes)])
