"""Labels that tell our sandboxes from all others, and whether the process that made one lives.

A sandbox bears :data:`OURS`, and the name of the process that made it. Only on the same machine,
in the same pid namespace, can that process be found dead; of others we do not know.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Literal

OURS: Mapping[str, str] = {"legato": "desktop"}
"""Labels of every sandbox of ours."""
OWNER = "legato-owner"


def labels() -> dict[str, str]:
    """What a sandbox of this process bears."""
    return {**OURS, OWNER: _name(os.getpid())}


def state(found: Mapping[str, str]) -> Literal["in use", "left behind", "of another machine"]:
    """What is known of the process that made a sandbox of ours."""
    named = re.fullmatch(r"([0-9a-f]{12})-(\d+)-(\d+)", found.get(OWNER, ""))
    if named is None or named[1] != _machine():
        return "of another machine"
    return "in use" if _name(int(named[2])) == named[0] else "left behind"


def is_ours(found: Mapping[str, str]) -> bool:
    return OURS.items() <= found.items()


def _name(pid: int) -> str:
    """Of a process; a later one with the same pid started at another time."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    started = stat.rpartition(")")[2].split()[19]  # proc(5): field 22, starttime
    return f"{_machine()}-{pid}-{started}"


@cache
def _machine() -> str:
    """Of this boot of this machine, and this pid namespace."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text()
    namespace = os.stat("/proc/self/ns/pid").st_ino
    return hashlib.sha256(f"{boot}{namespace}".encode()).hexdigest()[:12]
