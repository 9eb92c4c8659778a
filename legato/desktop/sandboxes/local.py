"""Sandboxes on this machine, by bubblewrap: the contract without a provider and its bill.

For whoever writes a provider, or tests what stands on one. Desktops of this machine are better
had from the backend ``local``, which needs no stream in between.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import secrets
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from legato.desktop.guest.enclosure import BWRAP
from legato.desktop.guest.mux import CHUNK
from legato.desktop.local.requirements import check_requirements
from legato.desktop.local.sandbox import FIRST_UID, UIDS
from legato.desktop.sandboxes.contract import Output, Sandbox, Sandboxes, SandboxGone
from legato.errors import EnvFailure

START_S = 20.0
OPERATOR = 1001
"""User id inside; not root, but owner of whatever can be written."""
WRITABLE = ("/opt", "/tmp", "/run", "/root", "/home", "/dev/shm")

_ENTER = ["--user", "--mount", "--pid", "--net", "--ipc", "--uts", "--preserve-credentials"]
_ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/root", "LANG": "C.UTF-8"}


@dataclass
class _Machine:
    sandbox: Sandbox
    keeper: subprocess.Popen[bytes]
    """bubblewrap around ``cat``: it ends when our end of its input is closed, by our death too."""
    pid: int
    """Of the first process inside."""
    uid: int
    timer: threading.Timer


class LocalSandboxes(Sandboxes):
    kind = "local"

    def __init__(self) -> None:
        self._machines: dict[str, _Machine] = {}
        self._guard = threading.Lock()
        self._numbers = itertools.count()

    def check(self) -> None:
        check_requirements()

    def create(self, labels: Mapping[str, str], *, life_s: float, timeout: float) -> Sandbox:
        uid = FIRST_UID + next(self._numbers) % UIDS if os.getuid() == 0 else os.getuid()
        info, info_in = os.pipe()
        try:
            keeper = subprocess.Popen(
                _command(info_in),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[info_in],
                start_new_session=True,
                cwd="/",
                env=_ENV,
                **_as(uid),
            )
        finally:
            os.close(info_in)
        with os.fdopen(info) as told:
            said = told.read()
        assert keeper.stdout is not None
        # Its first process is told of before it is where it is to be.
        up = keeper.stdout.readline()
        try:
            pid = int(json.loads(said)["child-pid"]) if up else 0
        except (ValueError, KeyError):
            pid = 0
        if not pid:
            _, errors = keeper.communicate(timeout=START_S)
            raise EnvFailure(f"bubblewrap failed: {errors.decode(errors='replace')}")
        sandbox = Sandbox(secrets.token_hex(8), dict(labels), time.time())
        timer = self._timer(sandbox.id, life_s)
        with self._guard:
            self._machines[sandbox.id] = _Machine(sandbox, keeper, pid, uid, timer)
        timer.start()
        return sandbox

    def keep(self, id: str, life_s: float) -> None:
        machine = self._machine(id)
        machine.timer.cancel()
        machine.timer = self._timer(id, life_s)
        machine.timer.start()

    def execute(
        self,
        id: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        timeout: float = 60.0,
    ) -> Output:
        process = self.start(id, argv, env=env, stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT)
        try:
            said, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            _kill(process)
            process.communicate()
            raise EnvFailure(f"{shlex.join(argv)[:80]} did not end within {timeout:g} s") from None
        return Output(process.returncode, said.decode("utf-8", "replace"))

    def upload(self, id: str, path: str, data: bytes) -> None:
        write = self.start(id, ["/bin/sh", "-c", 'cat > "$0"', path], stderr=subprocess.STDOUT)
        said, _ = write.communicate(data, timeout=60.0)
        if write.returncode:
            raise EnvFailure(f"could not write {path}: {said.decode(errors='replace')}")

    def download(self, id: str, path: str) -> bytes | None:
        read = self.start(id, ["/bin/cat", path], stdin=subprocess.DEVNULL)
        data, errors = read.communicate(timeout=60.0)
        if read.returncode and b"No such file" in errors:
            return None
        if read.returncode:
            raise EnvFailure(f"could not read {path}: {errors.decode(errors='replace')}")
        return data

    def stream(
        self, id: str, argv: Sequence[str], *, env: Mapping[str, str] | None = None
    ) -> ProcessStream:
        return ProcessStream(self.start(id, argv, env=env))

    def start(
        self,
        id: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        stdin: int | IO[Any] = subprocess.PIPE,
        stdout: int | IO[Any] = subprocess.PIPE,
        stderr: int | IO[Any] = subprocess.PIPE,
    ) -> subprocess.Popen[bytes]:
        """A command inside, as a process of ours. Raises :class:`SandboxGone`."""
        machine = self._machine(id)
        return subprocess.Popen(
            ["/usr/bin/nsenter", f"--target={machine.pid}", *_ENTER, "--wdns=/root", "--", *argv],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
            cwd="/",
            env={**_ENV, **(env or {})},
            **_as(machine.uid),
        )

    def delete(self, id: str) -> None:
        with self._guard:
            machine = self._machines.pop(id, None)
        if machine is None:
            return
        machine.timer.cancel()
        with contextlib.suppress(ProcessLookupError):
            os.kill(machine.pid, signal.SIGKILL)
        machine.keeper.kill()
        machine.keeper.communicate()

    def list(self, labels: Mapping[str, str]) -> list[Sandbox]:
        with self._guard:
            found = [machine.sandbox for machine in self._machines.values()]
        return [sandbox for sandbox in found if labels.items() <= sandbox.labels.items()]

    def close(self) -> None:
        for id in list(self._machines):
            self.delete(id)

    def _machine(self, id: str) -> _Machine:
        with self._guard:
            machine = self._machines.get(id)
        if machine is None or machine.keeper.poll() is not None:
            raise SandboxGone(f"there is no sandbox {id}")
        return machine

    def _timer(self, id: str, life_s: float) -> threading.Timer:
        timer = threading.Timer(life_s, self.delete, [id])
        timer.daemon = True
        return timer


class ProcessStream:
    """Implements :class:`~legato.desktop.guest.mux.Stream` with a process, which it owns."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._said = bytearray()
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin, self._stdout = process.stdin, process.stdout
        self._listening = threading.Thread(target=self._listen, daemon=True)
        self._listening.start()

    @property
    def errors(self) -> str:
        """What the command complained about."""
        self._listening.join(0.5)
        return self._said.decode("utf-8", "replace")

    def read(self) -> bytes:
        return os.read(self._stdout.fileno(), CHUNK)

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._stdin.fileno(), view) :]

    def close(self) -> None:
        _kill(self._process)
        self._process.wait()

    def _listen(self) -> None:
        assert self._process.stderr is not None
        while data := os.read(self._process.stderr.fileno(), CHUNK):
            self._said += data


def _command(info: int) -> list[str]:
    argv = [BWRAP, "--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc"]
    argv += ["--unshare-uts", "--hostname", "sandbox", "--uid", str(OPERATOR)]
    argv += ["--gid", str(OPERATOR), "--info-fd", str(info), "--proc", "/proc"]
    # Not a new /dev: for that bubblewrap makes one more user namespace, which cannot be entered.
    argv += ["--dev-bind", "/dev", "/dev"]
    argv += ["--ro-bind", "/usr", "/usr", "--ro-bind", "/etc", "/etc"]
    for name in ("/bin", "/sbin", "/lib", "/lib32", "/lib64"):
        if Path(name).is_symlink():
            argv += ["--symlink", os.readlink(name), name]
        else:
            argv += ["--ro-bind-try", name, name]
    for place in WRITABLE:
        argv += ["--tmpfs", place]
    argv += ["--ro-bind-try", "/opt/google", "/opt/google"]
    argv += ["--ro-bind-try", "/var/cache/fontconfig", "/var/cache/fontconfig"]
    return [*argv, "--", "/bin/sh", "-c", "echo up; exec cat"]


def _as(uid: int) -> dict[str, Any]:
    """Who runs the sandbox: as root someone else, for root's files are not the sandbox's."""
    return {"user": uid, "group": uid, "extra_groups": []} if os.getuid() == 0 else {}


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
