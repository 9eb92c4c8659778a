"""Desktops in sandboxes: the guest program is sent into one, and spoken to over a stream."""

from __future__ import annotations

import io
import itertools
import os
import shutil
import tarfile
import tempfile
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path

from legato.desktop import rundir
from legato.desktop.contract import DesktopOptions, Task
from legato.desktop.guest import bundle, enclosure
from legato.desktop.guest.box import Box
from legato.desktop.guest.desktop import GuestDesktop
from legato.desktop.guest.mux import Stream
from legato.desktop.guest.remote import RemoteGuest
from legato.desktop.sandboxes import fleet as fleets
from legato.desktop.sandboxes.contract import Sandboxes
from legato.desktop.sandboxes.options import SandboxOptions
from legato.errors import EnvFailure

START_S = 60.0
ARCHIVE = "/opt/legato.tar.gz"

_ENCLOSED = (
    f"import sys; sys.path.insert(0, {enclosure.STAGED!r}); "
    "from legato_guest.enclosure import main; main()"
)


class SandboxBox:
    """Implements :class:`~legato.desktop.guest.box.Box` with one sandbox."""

    def __init__(self, fleet: fleets.Fleet, scratch: Path) -> None:
        self.home = enclosure.HOME
        self.scratch = scratch
        self._fleet = fleet
        self._killed = threading.Event()
        self._id: str | None = None
        self._stream: Stream | None = None

    def connect(self) -> RemoteGuest:
        sandboxes = self._fleet.sandboxes
        self._id = self._fleet.create(self._killed).id
        self._check()
        sandboxes.upload(self._id, ARCHIVE, _archive())
        stage = enclosure.STAGED
        unpack = f"rm -rf {stage} && mkdir -p {stage} && tar -xzf {ARCHIVE} -C {stage}"
        unpacked = sandboxes.execute(self._id, ["/bin/sh", "-c", unpack])
        if unpacked.code:
            raise EnvFailure(f"the guest program could not be unpacked: {unpacked.text[-500:]}")
        self._check()
        options = self._fleet.options
        argv = ["/usr/bin/python3", "-I", "-S", "-c", _ENCLOSED]
        argv += ["--disk-mib", str(options.disk_mib)]
        argv += ["--max-processes", str(options.max_processes)]
        self._stream = sandboxes.stream(self._id, argv)
        self._check()
        try:
            return RemoteGuest(self._stream, deadline_s=START_S)
        except EnvFailure as e:
            said = getattr(self._stream, "errors", "").strip()
            if "bwrap:" in said:
                said += "; sandboxes of this provider must allow unprivileged user namespaces"
            raise EnvFailure(f"{e} ({said or 'no message'})") from e

    def kill(self) -> None:
        """Without its driver the guest program ends at once; the sandbox follows."""
        self._killed.set()
        stream = self._stream
        if stream is not None:
            stream.close()

    def wait_gone(self) -> None:
        try:
            if self._id is not None:
                self._fleet.delete(self._id)
        finally:
            shutil.rmtree(self.scratch, ignore_errors=True)

    def _check(self) -> None:
        if self._killed.is_set():
            raise EnvFailure("the desktop was killed while its sandbox started")


class SandboxProvider:
    """Implements :class:`~legato.desktop.guest.box.Provider`."""

    def __init__(self, options: SandboxOptions, connect: Callable[[], Sandboxes]) -> None:
        self._options, self._connect = options, connect
        self._fleet: fleets.Fleet | None = None
        self._directory: tuple[Path, int] | None = None
        self._numbers = itertools.count(1)

    def create(self) -> SandboxBox:
        if self._fleet is None:
            self._fleet = fleets.acquire(self._options, self._connect)
        if self._directory is None:
            rundir.sweep()
            self._directory = rundir.create()
        return SandboxBox(self._fleet, self._directory[0] / f"scratch{next(self._numbers)}")

    def close(self) -> None:
        if self._fleet is not None:
            fleets.release(self._fleet)
            self._fleet = None
        if self._directory is not None:
            base, lock = self._directory
            shutil.rmtree(base, ignore_errors=True)
            os.close(lock)
            self._directory = None


class SandboxDesktop(GuestDesktop):
    """A :class:`~legato.desktop.guest.desktop.GuestDesktop` in a provider's sandbox.

    The sandbox is kept from rollout to rollout, and replaced after ``episodes`` of them.
    """

    def __init__(
        self,
        options: DesktopOptions,
        slot: int,
        own: SandboxOptions,
        connect: Callable[[], Sandboxes],
    ) -> None:
        super().__init__(options, slot, SandboxProvider(own, connect))
        self._episodes = own.episodes
        self._worn: Box | None = None
        self._used = 0
        """Episodes that the box ``_worn`` has seen."""

    def prepare(self) -> None:
        if self._worn is self._box and self._used >= self._episodes:
            self._tear_down()
        super().prepare()

    def reset(self, task: Task) -> None:
        super().reset(task)
        if self._worn is not self._box:
            self._worn, self._used = self._box, 0
        self._used += 1


_checked: set[SandboxOptions] = set()


def forget_checks() -> None:
    """Ask the providers again: another key may be in the environment."""
    _checked.clear()


def make_sandbox_desktop(
    options: DesktopOptions, slot: int, own: SandboxOptions, connect: Callable[[], Sandboxes]
) -> SandboxDesktop:
    """What a backend's factory returns; the first of a process asks the provider.

    Raises :class:`~legato.errors.ConfigError` for a key that is not taken or an image that is not
    there.
    """
    if own not in _checked:
        sandboxes = connect()
        try:
            sandboxes.check()
        finally:
            sandboxes.close()
        _checked.add(own)
    return SandboxDesktop(options, slot, own, connect)


@cache
def _archive() -> bytes:
    """The staged guest program, and the accounts of its enclosure, to be unpacked by root."""
    buffer = io.BytesIO()
    with tempfile.TemporaryDirectory(prefix="legato-stage-") as directory:
        stage = Path(directory, "stage")
        bundle.stage(stage)
        accounts = stage / "etc"
        accounts.mkdir()
        for name, text in enclosure.ACCOUNTS.items():
            (accounts / name).write_text(text)
        for path in (stage, *stage.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
            archive.add(stage, ".", filter=_owned_by_root)
    return buffer.getvalue()


def _owned_by_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    return entry
