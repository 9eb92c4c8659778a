"""Starting the host processes that tasks need, confined (:mod:`legato.tasks.confined`)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

_CONFINED = Path(__file__).with_name("confined.py")


@dataclass(frozen=True, slots=True)
class Limits:
    """What one host process may take."""

    wall_s: float = 30.0
    """Deadline of a whole judgement; of a server, until it is up."""
    cpu_s: int = 10
    memory_bytes: int = 512 * 2**20
    """Address space; the interpreter itself needs about 30 MiB."""
    output_bytes: int = 2**20
    """Size of each file it writes, its standard output included."""


def start_confined(
    job: Literal["judge", "serve"],
    file: Path,
    *arguments: str,
    limits: Limits,
    stdin: int | IO[bytes],
    stdout: int | IO[bytes],
    stderr: int | IO[bytes],
) -> subprocess.Popen[bytes]:
    """Start it. A judge ends with the calling thread at the latest. Raises ``OSError``."""
    told = {
        "cpu_s": limits.cpu_s,
        "memory_bytes": limits.memory_bytes,
        "output_bytes": limits.output_bytes,
        "parent": os.getpid(),
    }
    return subprocess.Popen(
        [sys.executable, "-I", "-S", str(_CONFINED), job, str(file), json.dumps(told), *arguments],
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        env={"LC_ALL": "C.UTF-8"},
        cwd="/",
    )


def how_it_ended(code: int) -> str:
    """In words, what an exit status of ``subprocess`` says."""
    return f"failed (exit status {code})" if code >= 0 else f"was ended by signal {-code}"


def last_line(stderr: IO[bytes]) -> str:
    """The last thing a process said on its standard error, as ``: ...``."""
    stderr.seek(0)
    lines = stderr.read(2**16).decode("utf-8", "replace").strip().splitlines()
    return f": {lines[-1][:500]}" if lines else ""
