"""Container engines of the tests' own: their files, sockets and processes in one directory."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from legato.desktop.docker.build import make_image
from legato.desktop.docker.engine import Engine
from tests.conftest import REPO

CACHE = REPO / ".cache" / "desktop-image"
"""Where `make test` has put the image's files."""
DISK = "3g"
"""An engine's, twice the image: podman unpacks an archive beside it first."""
UP_S = 60.0
DOWN_S = 60.0


class DaemonProcess:
    """A running daemon and what it wrote."""

    tcp = ""
    """Its other address, where it was asked for one."""

    def __init__(self, argv: Sequence[str], socket_path: Path, log: Path, **env: str) -> None:
        if not shutil.which(argv[0], path=f"{os.environ['PATH']}:/usr/sbin"):
            raise AssertionError(f"these tests need {argv[0]}: make setup installs it")
        self.socket = socket_path
        self.address = f"unix://{socket_path}"
        self._log = log
        environment = os.environ | {"PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"} | env
        with log.open("wb") as said:
            self._process = subprocess.Popen(
                argv,
                cwd=log.parent,  # where podman's helpers leave notes
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                env=environment,
            )
        try:
            self._await()
        except BaseException:
            self.stop()
            raise

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def stop(self) -> None:
        self._process.send_signal(signal.SIGCONT)
        self._process.terminate()
        try:
            self._process.wait(DOWN_S)
        finally:
            self._process.kill()
            self._process.wait()

    def _await(self) -> None:
        deadline = time.monotonic() + UP_S
        while not self._answers():
            ended = self._process.poll() is not None
            if ended or time.monotonic() > deadline:
                said = self._log.read_text(errors="replace").strip()[-2000:]
                what = "ended" if ended else f"was not up within {UP_S:g} s"
                raise AssertionError(f"{self._process.args} {what}:\n{said}")  # type: ignore[str-bytes-safe]
            time.sleep(0.1)

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as client:
            try:
                client.connect(str(self.socket))
            except OSError:
                return False
        return True


@contextmanager
def memory_disk(directory: Path, size: str) -> Iterator[Path]:
    """A file system in memory: gone in a moment, with whatever an engine put there."""
    directory.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(directory)]
    done = subprocess.run(mount, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"these tests must run as root, and may mount: {done.stderr}"
    try:
        yield directory
    finally:
        # Lazily: a helper of a container that just ended may be on its way out of there.
        unmount = ["umount", "--recursive", "--lazy", str(directory)]
        subprocess.run(unmount, check=True, timeout=60)


@contextmanager
def dockerd(directory: Path, *, disk: str = DISK, tcp: bool = False) -> Iterator[DaemonProcess]:
    """A dockerd that makes no networks and touches no firewall, with a disk of that size."""
    with memory_disk(directory, disk):
        yield from _dockerd(directory, tcp)


def _dockerd(directory: Path, tcp: bool) -> Iterator[DaemonProcess]:
    sock = directory / "docker.sock"
    port = free_port() if tcp else None
    config = {
        "data-root": str(directory / "data"),
        "exec-root": str(directory / "exec"),
        "pidfile": str(directory / "docker.pid"),
        "hosts": [f"unix://{sock}", *([f"tcp://127.0.0.1:{port}"] if tcp else [])],
        "tls": False,
        "iptables": False,
        "ip6tables": False,
        "bridge": "none",
        "storage-driver": "overlay2",
    }
    file = directory / "daemon.json"
    file.write_text(json.dumps(config))
    daemon = DaemonProcess(["dockerd", "--config-file", str(file)], sock, directory / "log")
    daemon.tcp = f"tcp://127.0.0.1:{port}"
    try:
        yield daemon
    finally:
        daemon.stop()


@contextmanager
def podman(directory: Path) -> Iterator[DaemonProcess]:
    """podman's API service, with images and containers of its own."""
    with memory_disk(directory, DISK):
        yield from _podman(directory)


def _podman(directory: Path) -> Iterator[DaemonProcess]:
    sock = directory / "podman.sock"
    _, processes = resource.getrlimit(resource.RLIMIT_NPROC)
    most = int(Path("/proc/sys/kernel/pid_max").read_text())
    processes = most if processes == resource.RLIM_INFINITY else min(processes, most)
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    config = directory / "containers.conf"
    # Where nobody may raise limits, root included, the ones that podman sets by itself are too
    # high; and not every machine has the version of control groups that crun, its usual runtime,
    # wants.
    config.write_text(
        f'[containers]\ndefault_ulimits = ["nproc={processes}:{processes}", '
        f'"nofile={files}:{files}"]\n'
        '[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\nruntime = "runc"\n'
    )
    argv = ["podman", "--root", str(directory / "root"), "--runroot", str(directory / "run")]
    argv += ["--tmpdir", str(directory / "tmp")]
    service = [*argv, "system", "service", "--time", "0", f"unix://{sock}"]
    daemon = DaemonProcess(service, sock, directory / "log", CONTAINERS_CONF=str(config))
    try:
        yield daemon
    finally:
        daemon.stop()


def bring_image(address: str) -> str:
    """The desktop image, on this engine."""
    engine = Engine(address)
    try:
        return make_image(engine, CACHE)
    finally:
        engine.close()


def await_port(port: int, process: subprocess.Popen[bytes]) -> None:
    """Return when somebody listens on this host's ``port``; ``process`` is to be that."""
    deadline = time.monotonic() + UP_S
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=UP_S).close()
        except OSError:
            assert process.poll() is None, f"{process.args!r} ended"
            assert time.monotonic() < deadline, f"nobody listened within {UP_S:g} s"
            time.sleep(0.05)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])
