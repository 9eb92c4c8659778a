"""A host process out of the agent's reach: confine itself, load one file, do its job.

Run as ``python -I -S confined.py JOB FILE LIMITS [ARGUMENT...]``; stdlib only, and so is FILE.
JOB is ``judge`` (``FILE.judge(evidence) -> list[dict]``; evidence on standard input, the verdict
on standard output) or ``serve`` (``FILE.open(ARGUMENT...)`` opens what it needs as the user who
started it and returns what to run confined, until standard input closes).

Confined means: without network, as a user of its own when started by root (neither the agent's, nor
the driver's, nor that of the other kind of job), no new processes, limits on CPU, memory and file
size. Where the kernel gives it no network of its own it does nothing, and exits with
:data:`NETWORKED`. It ends with the driver: a judge with the thread that waits
for it; a server, which outlives threads, when its standard input closes.

FILE may import from ``legato.tasks`` what needs the standard library alone: the packages
themselves are not run, since they import libraries that are not there.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import NoReturn

_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_UNPRIVILEGED = _CLONE_NEWNET | _CLONE_NEWUSER
_PR_SET_PDEATHSIG = 1
_PR_SET_NO_NEW_PRIVS = 38
_USERS = {"judge": 65301, "serve": 65302}
"""In systemd's range for short-lived users, so nobody's, and outside of the sandboxes' part."""
NETWORKED = 77
"""Exit status of one that could not leave the network."""


def _die_with(parent: int, libc: ctypes.CDLL) -> None:
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit("the driver is gone")


def _leave_network(libc: ctypes.CDLL, flags: int) -> bool:
    """Whether it has only a network of its own now, in which nothing is."""
    return bool(libc.unshare(flags) == 0)


def _refuse() -> NoReturn:
    print("could not leave the network: the kernel refuses namespaces", file=sys.stderr)
    sys.exit(NETWORKED)


def _limit(limits: dict[str, int]) -> None:
    memory, cpu, output = limits["memory_bytes"], limits["cpu_s"], limits["output_bytes"]
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 1))
    resource.setrlimit(resource.RLIMIT_FSIZE, (output, output))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
    # No children, so that ending this process ends all of it.
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))


def _stand_in_packages() -> None:
    here = Path(__file__).resolve().parent
    for name, folder in (("legato", here.parent), ("legato.tasks", here)):
        package = ModuleType(name)
        package.__path__ = [str(folder)]
        sys.modules[name] = package


def _load(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location("confined_job", path)
    if spec is None or spec.loader is None:
        sys.exit(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module
    spec.loader.exec_module(module)
    return module


def _drop_root(user: int) -> None:
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)


def _judge(module: ModuleType) -> None:
    evidence = json.loads(sys.stdin.buffer.read())
    verdict = json.dumps({"checks": module.judge(evidence)}, ensure_ascii=False)
    # A check may quote what the agent left behind, such as a file name that is no valid text.
    sys.stdout.buffer.write(verdict.encode("utf-8", "replace"))
    sys.stdout.flush()


def main() -> None:
    job, path, limits_json, *arguments = sys.argv[1:]
    limits: dict[str, int] = json.loads(limits_json)
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    privileged = os.geteuid() == 0
    # Without a user namespace first: root has other users in no other way.
    alone = _leave_network(libc, _CLONE_NEWNET if privileged else _UNPRIVILEGED)
    if not (alone or privileged):
        _refuse()
    _limit(limits)
    # Loaded before root is dropped: the interpreter's files may be readable by root alone.
    _stand_in_packages()
    module = _load(path)
    run: Callable[[], None] = module.open(*arguments) if job == "serve" else lambda: _judge(module)
    _drop_root(_USERS[job])
    # Root may lack the right: then as any user does it.
    if not (alone or _leave_network(libc, _UNPRIVILEGED)):
        _refuse()
    if job == "judge":
        # Last, since a change of user clears it.
        _die_with(limits["parent"], libc)
    run()


if __name__ == "__main__":
    main()
