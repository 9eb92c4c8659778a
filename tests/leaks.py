"""Finds what a test session left behind: processes, mounts and temporary files of ours."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

MARK = "LEGATO_TEST_SESSION"
"""Environment variable by which processes that a session started are told from all others."""
GRACE_S = 10.0
"""How long a process may take to die after the last test."""
OURS = "legato"
"""Names of our temporary files start with this; those of libraries are none of our business."""


@dataclass
class LeakCheck:
    """Marks everything that starts between :meth:`begin` and :meth:`finish`."""

    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    tmp: Path = field(init=False)

    def begin(self) -> None:
        outer = tempfile.gettempdir()
        # Failed tests' tmp_path directories stay where people look for them.
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", outer)
        self.tmp = Path(tempfile.mkdtemp(prefix="legato-tests-"))
        self.tmp.chmod(0o1777)  # some tests act as another user
        os.environ["TMPDIR"] = str(self.tmp)
        os.environ[MARK] = self.mark
        tempfile.tempdir = None

    def finish(self) -> list[str]:
        """One line for each thing left, after killing and removing it."""
        deadline = time.monotonic() + GRACE_S
        while (left := self._processes()) and time.monotonic() < deadline:
            time.sleep(0.1)
        lines = [f"process {pid}: {what}" for pid, what in left.items()]
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
        lines += [f"mount {m}" for m in mounts if m.startswith(f"{self.tmp}/")]
        lines += [f"temporary file {p}" for p in sorted(self.tmp.iterdir()) if OURS in p.name]
        if not any(line.startswith("mount") for line in lines):
            shutil.rmtree(self.tmp, ignore_errors=True)
        return lines

    def _processes(self) -> dict[int, str]:
        me = os.getpid()
        parents: dict[int, int] = {}
        marked: dict[int, str] = {}
        described: dict[int, str] = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            pid = int(entry.name)
            try:
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
                environment = (entry / "environ").read_bytes()
            except (FileNotFoundError, ProcessLookupError):
                continue
            except PermissionError:
                environment = b""
            # Python's own helper lives for as long as the interpreter.
            if state == "Z" or "multiprocessing.resource_tracker" in command:
                continue
            parents[pid], described[pid] = int(parent), command
            if f"{MARK}={self.mark}".encode() in environment.split(b"\0"):
                marked[pid] = command
        for pid in parents:
            ancestor: int | None = parents[pid]
            while ancestor and ancestor != me:
                ancestor = parents.get(ancestor)
            if ancestor == me:
                marked[pid] = described[pid]
        marked.pop(me, None)
        return marked
