"""Programs that set-up started: which of them ended though the agent did not end them.

Runs inside the sandbox under the system's own Python: standard library only.
"""

import signal
from dataclasses import dataclass

from .processes import Process

CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGTRAP, signal.SIGILL)
"""Signals by which a browser ends itself, when it finds no memory too."""


@dataclass
class Launched:
    """One of them."""

    name: str
    process: Process
    locked: bool
    browser: bool

    def lost(self, *, out_of_memory: bool) -> bool:
        """Whether it ended, and not by the agent's doing.

        Whoever has a terminal may send any signal; on a locked desktop nobody has. A crash may
        have been provoked, but a browser's managed policy leaves no way to.
        """
        code = self.process.exit_code
        if code == -signal.SIGKILL:
            return self.locked or out_of_memory
        return self.locked and self.browser and code in [-crash for crash in CRASHES]


class Episode:
    """All of one episode. What ended before :meth:`begin` was set-up's to end."""

    def __init__(self) -> None:
        self.launched: list[Launched] = []
        self._watched: list[Launched] = []
        self._oom_kills = 0

    def begin(self) -> None:
        self._watched = [made for made in self.launched if made.process.exit_code is None]
        self._oom_kills = _oom_kills()

    def lost(self) -> list[str]:
        """Names of those that ended since, though not by the agent's doing."""
        out_of_memory = _oom_kills() != self._oom_kills
        return [made.name for made in self._watched if made.lost(out_of_memory=out_of_memory)]


def _oom_kills() -> int:
    """Processes the kernel has killed for want of memory, anywhere on this host (proc(5))."""
    try:
        with open("/proc/vmstat", "rb") as f:
            counts = dict(line.split() for line in f)
    except FileNotFoundError:
        return 0  # a kernel that does not count them
    return int(counts.get(b"oom_kill", 0))
