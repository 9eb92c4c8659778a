"""What this machine must have for local desktops, told before anything starts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from legato.desktop.local.sandbox import FIRST_UID
from legato.errors import ConfigError

PACKAGES = {
    "bwrap": "bubblewrap",
    "Xvfb": "xvfb",
    "openbox": "openbox",
    "tint2": "tint2",
    "xkbcomp": "x11-xkb-utils",
    "python3": "python3",
    "ipcrm": "util-linux",
}
"""Programs, as found in ``/usr/bin``, and the Debian package of each."""


def check_requirements() -> None:
    """Raise ``ConfigError`` saying what to install or allow, unless local desktops can run here."""
    if sys.platform != "linux" or not hasattr(os, "pidfd_open"):
        raise ConfigError("local desktops need Linux 5.3 or later; use another backend")
    missing = sorted(
        {package for name, package in PACKAGES.items() if not shutil.which(name, path="/usr/bin")}
    )
    if not any(Path("/usr/share/fonts").rglob("*.ttf")):
        missing.append("fonts-dejavu-core")
    if missing:
        raise ConfigError(
            f"local desktops need packages that are missing: apt-get install {' '.join(missing)}"
        )
    as_user = {"user": FIRST_UID, "group": FIRST_UID, "extra_groups": []}
    try:
        tried = subprocess.run(
            ["/usr/bin/bwrap", "--unshare-all", "--ro-bind", "/", "/", "/usr/bin/true"],
            capture_output=True,
            text=True,
            timeout=20,
            cwd="/",
            **(as_user if os.getuid() == 0 else {}),  # type: ignore[call-overload]
        )
    except (OSError, subprocess.TimeoutExpired) as e:
        raise ConfigError(f"bubblewrap does not run here: {e}") from e
    if tried.returncode != 0:
        raise ConfigError(
            "unprivileged user namespaces are not allowed here: set the sysctls "
            "kernel.unprivileged_userns_clone=1, user.max_user_namespaces above 0 and "
            "kernel.apparmor_restrict_unprivileged_userns=0 (those that exist), or start the "
            f"container with a seccomp profile that allows them ({tried.stderr.strip()})"
        )
